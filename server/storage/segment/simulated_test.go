package segment

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
)

// errPower is the error of every call after the power failed.
var errPower = errors.New("the power is gone")

// simulated is a directory on a disk that, at some call, loses power, fails to sync, or whose process is
// killed. After a power failure, data that was not synced may or may not be there: of a file any subset of
// sectors, some of them torn in the middle; of the directory a prefix of its changes.
type simulated struct {
	random *rand.Rand
	// calls is counted down. The power fails at the call that makes it 0. Negative means never.
	calls  int
	off    bool
	files  map[string]*simulatedFile // as processes see them
	synced map[string]*simulatedFile
	// changes are the changes of the directory since it was synced.
	changes []func(map[string]*simulatedFile)
	// overwritten is set by the first write that overwrites a sector, or part of one, with different content:
	// torn at another place than the first write, such a sector would look damaged.
	overwritten error
}

type simulatedFile struct {
	disk    *simulated
	content []byte // as processes see it
	synced  []byte
	writes  []simulatedWrite // since it was synced
}

// simulatedWrite is data at an offset or, without data, a truncation.
type simulatedWrite struct {
	at   int64
	data []byte
}

func newSimulated(random *rand.Rand) *simulated {
	return &simulated{random: random, calls: -1, files: map[string]*simulatedFile{}, synced: map[string]*simulatedFile{}}
}

// call counts a call. last is true for the call at which the power fails.
func (d *simulated) call() (last bool, err error) {
	if d.off {
		return false, errPower
	}
	d.calls--
	if d.calls == 0 {
		d.off = true
		return true, errPower
	}
	return false, nil
}

func (d *simulated) Names() ([]string, error) { return slices.Sorted(maps.Keys(d.files)), nil }

func (d *simulated) change(do func(map[string]*simulatedFile)) error {
	last, err := d.call()
	if err == nil || last {
		do(d.files)
		d.changes = append(d.changes, do)
	}
	return err
}

func (d *simulated) Create(name string, size int64) (File, error) {
	f := &simulatedFile{disk: d}
	if err := d.change(func(files map[string]*simulatedFile) { files[name] = f }); err != nil {
		return nil, err
	}
	return f, f.Truncate(size)
}

func (d *simulated) Open(name string) (File, error) {
	f := d.files[name]
	if f == nil {
		return nil, fs.ErrNotExist
	}
	return f, nil
}

func (d *simulated) Rename(from, to string) error {
	return d.change(func(files map[string]*simulatedFile) {
		files[to] = files[from]
		delete(files, from)
	})
}

func (d *simulated) Remove(name string) error {
	return d.change(func(files map[string]*simulatedFile) { delete(files, name) })
}

func (d *simulated) Sync() error {
	if _, err := d.call(); err != nil {
		return err
	}
	d.synced, d.changes = maps.Clone(d.files), nil
	return nil
}

func (f *simulatedFile) write(w simulatedWrite) error {
	last, err := f.disk.call()
	if last && w.data != nil { // a part of it is written
		w.data = w.data[:f.disk.random.IntN(len(w.data)/sectorSize+1)*sectorSize]
	}
	f.disk.overwritten = cmp.Or(f.disk.overwritten, w.overwrites(f.content), w.overwrites(f.synced))
	if err == nil || last {
		f.content = w.apply(f.content)
		f.writes = append(f.writes, w)
	}
	return err
}

func (w simulatedWrite) apply(content []byte) []byte {
	if w.data == nil {
		return append(content[:min(w.at, int64(len(content)))], make([]byte, max(0, w.at-int64(len(content))))...)
	}
	if end := w.at + int64(len(w.data)); end > int64(len(content)) {
		content = append(content, make([]byte, end-int64(len(content)))...)
	}
	copy(content[w.at:], w.data)
	return content
}

// overwrites returns an error if the write overwrites a sector with different content.
func (w simulatedWrite) overwrites(content []byte) error {
	for at := 0; at+sectorSize <= len(w.data) && int(w.at)+at+sectorSize <= len(content); at += sectorSize {
		there, comes := content[int(w.at)+at:][:sectorSize], w.data[at:][:sectorSize]
		if !bytes.Equal(there, blankBytes[:]) && !bytes.Equal(comes, blankBytes[:]) && !bytes.Equal(there, comes) {
			return fmt.Errorf("the sector at %d gets a second content", int(w.at)+at)
		}
	}
	return nil
}

func (f *simulatedFile) WriteAt(p []byte, at int64) (int, error) {
	return len(p), f.write(simulatedWrite{at, slices.Clone(p)})
}

func (f *simulatedFile) Truncate(size int64) error { return f.write(simulatedWrite{size, nil}) }

func (f *simulatedFile) ReadAt(p []byte, at int64) (int, error) {
	if n := copy(p, f.content[min(at, int64(len(f.content))):]); n < len(p) {
		return n, io.EOF
	}
	return len(p), nil
}

func (f *simulatedFile) Close() error { return nil }

// Sync may fail and leave writes visible to processes only.
func (f *simulatedFile) Sync() error {
	last, err := f.disk.call()
	if last && f.disk.random.IntN(2) == 0 {
		f.writes = nil
	}
	if err != nil {
		return err
	}
	for _, w := range f.writes {
		f.synced = w.apply(f.synced)
	}
	f.writes = nil
	return nil
}

// restart simulates another process on the same kernel.
func (d *simulated) restart() *simulated {
	d.off, d.calls = false, -1
	return d
}

// reboot returns the disk after the power is back.
func (d *simulated) reboot() *simulated {
	next := newSimulated(d.random)
	next.overwritten = d.overwritten
	for _, change := range d.changes[:d.random.IntN(len(d.changes)+1)] {
		change(d.synced)
	}
	for _, name := range slices.Sorted(maps.Keys(d.synced)) { // sorted, so that a seed is reproducible
		f := d.synced[name]
		content := f.survivors(d.random)
		next.files[name] = &simulatedFile{disk: next, content: content, synced: slices.Clone(content)}
	}
	next.synced = maps.Clone(next.files)
	return next
}

// survivors returns a file's content after a power failure: a prefix of its writes, in which any sector may
// be missing or torn.
func (f *simulatedFile) survivors(random *rand.Rand) []byte {
	written := slices.Clone(f.synced)
	for _, w := range f.writes[:len(f.writes)-random.IntN(len(f.writes)+1)*random.IntN(2)] {
		written = w.apply(written)
	}
	if random.IntN(4) == 0 {
		return written
	}
	content := slices.Clone(f.synced)
	if random.IntN(2) == 0 {
		content = simulatedWrite{int64(len(written)), nil}.apply(content)
	}
	for at := 0; at < min(len(content), len(written)); at += sectorSize {
		from, to := 0, sectorSize
		switch random.IntN(4) {
		case 0:
			to = 0
		case 1:
			to = random.IntN(sectorSize)
		case 2:
			from = random.IntN(sectorSize)
		}
		if from < to {
			copy(content[at+from:at+to], written[at+from:at+to])
		}
	}
	return content
}
