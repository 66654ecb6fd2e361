package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

// ErrDamaged means that a store does not return what was stored.
var ErrDamaged = errors.New("the backup is damaged")

// File is a file that has the name of a backup.
type File struct {
	Name string
	// Tag changes when the content does.
	Tag string
	// Odd says what it is if it is no regular file, for example a directory. Nothing opens it.
	Odd string
}

// Store is a place for backups. A call ends soon after its context.
type Store interface {
	// Put stores what write writes and passes it to check as the store returns it. If either fails, there is no such
	// file afterwards. It never replaces a file: it returns fs.ErrExist if there is one of that name.
	Put(ctx context.Context, file string, write func(io.Writer) error, check func(io.Reader) error) error
	// Read passes the content of a file to read.
	Read(ctx context.Context, file string, read func(io.Reader) error) error
	// List returns all files that have the name of a backup.
	List(ctx context.Context) ([]File, error)
	// Remove removes a file. It returns nil if there is none.
	Remove(ctx context.Context, file string) error
	// String describes the store for people, without secrets.
	String() string
}

// Equals returns a check for Put: that what is read has this SHA-256.
func Equals(want [sha256.Size]byte) func(io.Reader) error {
	return func(r io.Reader) error {
		sum := sha256.New()
		n, err := io.Copy(sum, r)
		if err != nil {
			return err
		}
		if !bytes.Equal(sum.Sum(nil), want[:]) {
			return fmt.Errorf("%w: the %d bytes that were read back differ from those written", ErrDamaged, n)
		}
		return nil
	}
}

// limited makes reads and writes fail once ctx has ended.
type limited struct {
	ctx context.Context
	io.Reader
	io.Writer
}

func (l limited) Read(p []byte) (int, error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	return l.Reader.Read(p)
}

func (l limited) Write(p []byte) (int, error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	return l.Writer.Write(p)
}
