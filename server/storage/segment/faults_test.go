package segment

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/hashicorp/raft"
)

var errFault = errors.New("this call failed")

// faulty is a directory in which one call fails without effect. All others work.
type faulty struct {
	Directory
	left   int // calls until the failing one; 0 means never
	closed int // number of closed files
}

type faultyFile struct {
	File
	dir *faulty
}

func (d *faulty) fault() error {
	if d.left--; d.left == 0 {
		return errFault
	}
	return nil
}

func (d *faulty) call(do func() error) error {
	if err := d.fault(); err != nil {
		return err
	}
	return do()
}

func (d *faulty) open(do func() (File, error)) (File, error) {
	if err := d.fault(); err != nil {
		return nil, err
	}
	f, err := do()
	if err != nil {
		return nil, err
	}
	return faultyFile{f, d}, nil
}

func (d *faulty) Names() ([]string, error) {
	if err := d.fault(); err != nil {
		return nil, err
	}
	return d.Directory.Names()
}

func (d *faulty) Create(name string, size int64) (File, error) {
	return d.open(func() (File, error) { return d.Directory.Create(name, size) })
}

func (d *faulty) Open(name string) (File, error) {
	return d.open(func() (File, error) { return d.Directory.Open(name) })
}

func (d *faulty) Rename(from, to string) error {
	return d.call(func() error { return d.Directory.Rename(from, to) })
}

func (d *faulty) Remove(name string) error {
	return d.call(func() error { return d.Directory.Remove(name) })
}

func (d *faulty) Sync() error { return d.call(d.Directory.Sync) }

func (f faultyFile) ReadAt(p []byte, at int64) (int, error) {
	if err := f.dir.fault(); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, at)
}

func (f faultyFile) WriteAt(p []byte, at int64) (int, error) {
	if err := f.dir.fault(); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, at)
}

func (f faultyFile) Truncate(size int64) error {
	return f.dir.call(func() error { return f.File.Truncate(size) })
}

func (f faultyFile) Sync() error { return f.dir.call(f.File.Sync) }

func (f faultyFile) Close() error {
	f.dir.closed++
	return f.dir.call(f.File.Close)
}

// emptied returns a log whose last file has no batch yet.
func emptied(t *testing.T) image {
	t.Helper()
	_, log, holds := aged(t)
	if err := log.DeleteRange(holds.last, holds.last); err != nil {
		t.Fatal(err)
	}
	return imageOf(log.dir.(*simulated))
}

// tornEnd returns a log whose last batch was never finished, with a file that was never finished either.
func tornEnd(t *testing.T) image {
	t.Helper()
	files, log, _ := aged(t)
	last := log.places[len(log.places)-1]
	clear(files[nameOf(log.current().sequence)][last.batch*sectorSize:][:sectorSize])
	files[nameOf(99)+unfinished] = []byte("cut")
	return files
}

// TestEveryFailedCallIsReported verifies that the error of any failing call is returned, even if all later
// calls succeed.
func TestEveryFailedCallIsReported(t *testing.T) {
	whole, log, holds := aged(t)
	onto := func(do func(*Log) error) func(*faulty, int) error {
		return func(d *faulty, call int) error {
			l, err := Open(d, small)
			if err != nil {
				t.Fatal(err)
			}
			d.left = call
			return do(l)
		}
	}
	at := func(do func(*faulty) error) func(*faulty, int) error {
		return func(d *faulty, call int) error {
			d.left = call
			return do(d)
		}
	}
	open := at(func(d *faulty) error { _, err := Open(d, small); return err })
	long := &raft.Log{Index: holds.last + 1, Term: 1 << 20, Data: make([]byte, 20*sectorSize)}
	for _, test := range []struct {
		name  string
		files image
		calls int // minimum number of calls
		do    func(*faulty, int) error
	}{
		{"create", whole, 9, at(func(d *faulty) error { _, err := Create(d, small); return err })},
		{"open", whole, 10, open},
		{"open with an empty last file", emptied(t), 12, open},
		{"open with an unfinished end", tornEnd(t), 16, open},
		{"read", whole, 10, at(func(d *faulty) error {
			return Read(d, small, func(*raft.Log) error { return nil })
		})},
		{"store in another file", whole, 8, onto(func(l *Log) error { return l.StoreLog(long) })},
		{"store behind a snapshot", whole, 12, onto(func(l *Log) error {
			return l.StoreLog(&raft.Log{Index: holds.last + 9, Term: 1 << 20})
		})},
		{"mark", whole, 2, onto((*Log).Mark)},
		{"delete the end", whole, 7, onto(func(l *Log) error { return l.DeleteRange(holds.last, holds.last) })},
		{"delete the beginning", whole, 3, onto(func(l *Log) error { return l.DeleteRange(1, holds.last-1) })},
		{"delete all", whole, 12, onto(func(l *Log) error { return l.DeleteRange(1, holds.last) })},
		{"get", whole, 1, onto(func(l *Log) error { return l.GetLog(holds.last, &raft.Log{}) })},
		{"close", whole, len(log.files), onto((*Log).Close)},
	} {
		call := 1
		for ; call < 100; call++ {
			d := &faulty{Directory: test.files.disk()}
			err := test.do(d, call)
			if d.left > 0 {
				if err != nil {
					t.Errorf("%s: %v", test.name, err)
				}
				break
			}
			if !errors.Is(err, errFault) {
				t.Errorf("%s, call %d: %v", test.name, call, err)
			}
		}
		if call <= test.calls || call == 100 {
			t.Errorf("%s has %d calls", test.name, call-1)
		}
	}
}

// TestFailedOpenClosesItsFiles verifies that a failed Open, and Read, leave no file open, and that a visitor
// may keep the entries it gets from Read.
func TestFailedOpenClosesItsFiles(t *testing.T) {
	files, log, holds := aged(t)
	for what, spoil := range map[string]func(image){
		"a flipped bit":  func(i image) { i[nameOf(log.current().sequence)][firstBatch*sectorSize+9] ^= 1 },
		"a wrong header": func(i image) { i[nameOf(log.files[0].sequence)][9] ^= 1 },
	} {
		spoilt := files.clone()
		spoil(spoilt)
		d := &faulty{Directory: spoilt.disk()}
		if _, err := Open(d, small); !errors.Is(err, ErrDamaged) || d.closed != len(log.files) {
			t.Errorf("%s: %d of %d files were closed: %v", what, d.closed, len(log.files), err)
		}
	}
	d := &faulty{Directory: files.disk()}
	if err := Read(d, small, func(*raft.Log) error { return errFault }); !errors.Is(err, errFault) || errors.Is(err, ErrDamaged) {
		t.Errorf("the error of a visit: %v", err)
	}
	read := holds.clear()
	err := Read(d, small, func(e *raft.Log) error {
		read = read.store([]*raft.Log{e}) // keeps the entry
		return nil
	})
	if err != nil || read.last != holds.last {
		t.Fatalf("entries up to %d of %d: %v", read.last, holds.last, err)
	}
	for index := holds.first; index <= holds.last; index++ {
		if !same(read.entries[index], holds.entries[index]) {
			t.Errorf("entry %d is %v", index, read.entries[index])
		}
	}
}

// TestCloseTwice verifies that files are closed only once, even after a failed write.
func TestCloseTwice(t *testing.T) {
	for _, broken := range []bool{false, true} {
		d := &faulty{Directory: newSimulated(rand.New(rand.NewPCG(1, 1)))}
		options := small
		options.Failed = func(err error) { t.Errorf("a log that was closed reports %v", err) }
		l, err := Create(d, options)
		if err != nil {
			t.Fatal(err)
		}
		if broken {
			d.left = 1
			if err := l.StoreLog(&raft.Log{Index: 1, Term: 1}); !errors.Is(err, errFault) {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := l.Close(); err != nil || d.closed != 1 {
				t.Errorf("broken %v: closed %d times: %v", broken, d.closed, err)
			}
		}
		l.markAtRest()
	}
}
