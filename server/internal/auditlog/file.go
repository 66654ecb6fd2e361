package auditlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	// fileMode keeps others from reading who does what.
	fileMode = 0o600
	// tailBytes is how much of the file is read at once to find its last line. Lines are far shorter.
	tailBytes = 1 << 20
)

// file is the open file. Only the writer uses it after the start.
type file struct {
	path string
	f    *os.File
	// appendTo is f.Write; tests replace it.
	appendTo func([]byte) (int, error)
	info     os.FileInfo
	size     int64 // at least that much was in it
}

// openFile opens the file for appending, completes its last line, and returns the position there.
func openFile(path string) (*file, position, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, fileMode)
	if err != nil {
		return nil, position{}, err
	}
	o := &file{path: path, f: f, appendTo: f.Write}
	at, err := o.resume()
	if err != nil {
		_ = f.Close()
		return nil, position{}, fmt.Errorf("%s: %w", path, err)
	}
	return o, at, nil
}

// resume returns the position at the end of the file. A line that a crash has cut there is removed: its record is
// written again. What is no line of this package is kept, on a line of its own.
func (o *file) resume() (position, error) {
	var err error
	if o.info, err = o.f.Stat(); err != nil {
		return position{}, err
	}
	if !o.info.Mode().IsRegular() {
		return position{}, errors.New("not a regular file")
	}
	o.size = o.info.Size()
	tail := make([]byte, min(o.size, tailBytes))
	if _, err := o.f.ReadAt(tail, o.size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return position{}, err
	}
	torn, ours := tornLine(tail)
	at, err := o.search(o.size - int64(torn))
	if err != nil || torn == 0 {
		return at, err
	}
	if ours && o.f.Truncate(o.size-int64(torn)) == nil { // a file that may only grow cannot be truncated
		o.size -= int64(torn)
		return at, nil
	}
	_, err = o.write([]byte("\n"))
	return at, err
}

// search returns the position after the last line before end that is one of this package. Any number of other lines may
// follow it. A line that is longer than tailBytes is none of this package.
func (o *file) search(end int64) (position, error) {
	for end > 0 {
		start := max(0, end-tailBytes)
		lines := make([]byte, end-start)
		if _, err := o.f.ReadAt(lines, start); err != nil {
			return position{}, err
		}
		cut := 0 // the length of the line that begins before start
		if start > 0 {
			cut = bytes.IndexByte(lines[:len(lines)-1], '\n') + 1
		}
		if at, ok := lastLine(lines[cut:]); ok {
			return at, nil
		}
		end = start + int64(cut)
	}
	return position{}, nil
}

// write appends a line, or the rest of one.
func (o *file) write(line []byte) (int, error) {
	n, err := o.appendTo(line)
	o.size += int64(n)
	return n, err
}

// replaced reports whether the path names another file now, or none, or whether the file was truncated.
func (o *file) replaced() (moved, truncated bool) {
	now, err := os.Stat(o.path)
	if err != nil {
		return errors.Is(err, os.ErrNotExist), false
	}
	if !os.SameFile(now, o.info) {
		return true, false
	}
	truncated = now.Size() < o.size
	o.size = now.Size()
	return false, truncated
}

func (o *file) close() error { return errors.Join(o.f.Sync(), o.f.Close()) }
