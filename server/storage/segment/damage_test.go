package segment

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
)

// image is the content of a log's files.
type image map[string][]byte

// disk returns a simulated disk with these files.
func (i image) disk() *simulated {
	d := newSimulated(rand.New(rand.NewPCG(1, 1)))
	for name, content := range i {
		d.files[name] = &simulatedFile{disk: d, content: slices.Clone(content)}
	}
	return d
}

func (i image) clone() image {
	c := image{}
	for name, content := range i {
		c[name] = slices.Clone(content)
	}
	return c
}

func imageOf(d *simulated) image {
	i := image{}
	for name, f := range d.files {
		i[name] = slices.Clone(f.content)
	}
	return i
}

// aged returns a log after many changes: it has several files, and one that was cut off.
func aged(t *testing.T) (files image, log *Log, holds model) {
	t.Helper()
	c := life(t, 3)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 24 {
		batch := c.model.batch(c.random, c.model.last+1)
		must(c.log.StoreLogs(batch))
		if c.model = c.model.store(batch); i%8 == 7 {
			from := c.model.last - 1
			must(c.log.DeleteRange(from, c.model.last))
			c.model = c.model.delete(from, c.model.last)
		}
	}
	must(c.log.DeleteRange(1, 12))
	c.model = c.model.delete(1, 12)
	batch := c.model.batch(c.random, c.model.last+1)
	must(c.log.StoreLogs(batch))
	c.model = c.model.store(batch)
	if len(c.log.files) < 4 {
		t.Fatalf("%d files", len(c.log.files))
	}
	return imageOf(c.disk), c.log, c.model
}

// opened returns the error of opening a log with these files, or of its content.
func opened(files image, reached Position, holds model) error {
	options := small
	options.Reached = reached
	l, err := Open(files.disk(), options)
	if err != nil {
		return err
	}
	return holds.held(l)
}

// damaged checks that a log is rejected as damaged.
func damaged(t *testing.T, what string, files image, reached Position, holds model) {
	t.Helper()
	if err := opened(files, reached, holds); !errors.Is(err, ErrDamaged) {
		t.Errorf("%s: %v", what, err)
	}
}

// marked returns an aged log whose end is marked.
func marked(t *testing.T) (files image, log *Log, holds model) {
	t.Helper()
	_, log, holds = aged(t)
	if err := log.Mark(); err != nil {
		t.Fatal(err)
	}
	return imageOf(log.dir.(*simulated)), log, holds
}

// TestFlippedBits verifies that a flipped bit is detected wherever something was written, and is harmless
// elsewhere.
func TestFlippedBits(t *testing.T) {
	files, log, holds := marked(t)
	if err := opened(files, log.End(), holds); err != nil {
		t.Fatal(err)
	}
	step := 17
	if os.Getenv("QUORUMLOCK_CHECK") == "1" {
		step = 1
	}
	found, harmless := 0, 0
	for _, f := range log.files {
		content := files[nameOf(f.sequence)]
		for bit := 0; bit < 8*len(content); bit += step {
			content[bit/8] ^= 1 << (bit % 8)
			err := opened(files, Position{}, holds)
			switch written := bit/8 < int(f.end)*sectorSize; {
			case errors.Is(err, ErrDamaged):
				found++
			case err != nil || written:
				t.Fatalf("bit %d of byte %d of %s: %v", bit%8, bit/8, nameOf(f.sequence), err)
			default:
				harmless++
			}
			content[bit/8] ^= 1 << (bit % 8)
		}
	}
	t.Logf("%d flipped bits were found, %d did no harm", found, harmless)
	if found < 1000 || harmless == 0 {
		t.Error("these are too few")
	}
}

// TestLostAndMisplacedSectors verifies that a blank sector, and one with the content of another, are
// detected.
func TestLostAndMisplacedSectors(t *testing.T) {
	files, log, holds := marked(t)
	var all [][]byte
	for _, f := range log.files {
		for number := range f.end {
			all = append(all, slices.Clone(files[nameOf(f.sequence)][number*sectorSize:][:sectorSize]))
		}
	}
	all = append(all, blankBytes[:])
	for _, f := range log.files {
		content := files[nameOf(f.sequence)]
		for number := range f.end {
			sector := content[number*sectorSize:][:sectorSize]
			was := slices.Clone(sector)
			for i, other := range all {
				if copy(sector, other); slices.Equal(other, was) {
					continue
				}
				err := opened(files, log.End(), holds)
				if !errors.Is(err, ErrDamaged) {
					t.Errorf("sector %d of %s is %d of %d: %v", number, nameOf(f.sequence), i, len(all), err)
				}
			}
			copy(sector, was)
		}
	}
}

func TestMissingAndCutFiles(t *testing.T) {
	files, log, holds := marked(t)
	for i, f := range log.files {
		name := nameOf(f.sequence)
		without := files.clone()
		if delete(without, name); i > 0 {
			damaged(t, name+" is gone", without, Position{}, holds)
		} else if l, err := Open(without.disk(), small); err != nil || l.first <= holds.first {
			t.Errorf("without its first file: %v", err)
		}
		for _, size := range []int{0, 1, sectorSize, 2 * sectorSize, int(f.end)*sectorSize - 1} {
			cut := files.clone()
			if size < int(f.end)*sectorSize {
				cut[name] = cut[name][:size]
				damaged(t, name+" is cut", cut, Position{}, holds)
			}
		}
	}
	last := nameOf(log.current().sequence)
	cut := files.clone()
	cut[last] = cut[last][:len(cut[last])-sectorSize]
	damaged(t, "room at the end is missing", cut, Position{}, holds)
	damaged(t, "every file is gone", image{}, Position{}, holds)
	options := small
	options.ID = ID{9}
	if _, err := Open(files.disk(), options); !errors.Is(err, ErrDamaged) {
		t.Errorf("another log was opened: %v", err)
	}
}

// TestRolledBackLog verifies that an intact log that is shorter than before is detected as an older copy.
func TestRolledBackLog(t *testing.T) {
	before, log, holds := aged(t)
	batch := holds.batch(rand.New(rand.NewPCG(2, 2)), holds.last+1)
	if err := log.StoreLogs(batch); err != nil {
		t.Fatal(err)
	}
	damaged(t, "the log of a batch ago", before, log.End(), holds)
	if err := opened(imageOf(log.dir.(*simulated)), log.End(), holds.store(batch)); err != nil {
		t.Error(err)
	}
}

// TestLastBatch covers the last batch before the end is marked: a flipped bit is detected, and a blank sector
// counts as never written.
func TestLastBatch(t *testing.T) {
	files, log, holds := aged(t)
	last := log.places[len(log.places)-1]
	content := files[nameOf(log.current().sequence)]
	for bit := range 8 * sectorSize {
		at := int(last.batch)*sectorSize + bit/8
		content[at] ^= 1 << (bit % 8)
		damaged(t, "a flipped bit", files, Position{}, holds)
		content[at] ^= 1 << (bit % 8)
	}
	clear(content[last.batch*sectorSize:][:sectorSize])
	damaged(t, "a lost sector, and the log was known to go beyond it", files, log.End(), holds)
	l, err := Open(files.disk(), small)
	if err != nil {
		t.Fatal(err)
	}
	first := log.first + uint64(slices.IndexFunc(log.places, func(p place) bool { return p.file == last.file && p.batch == last.batch }))
	if err := holds.delete(first, holds.last).held(l); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestSpoiledEntryIsNotRead verifies that entries are checked when they are read.
func TestSpoiledEntryIsNotRead(t *testing.T) {
	_, log, holds := aged(t)
	for index := holds.first; index <= holds.last; index++ {
		p := log.places[index-holds.first]
		content := log.dir.(*simulated).files[nameOf(p.file.sequence)].content
		at := int(p.batch+p.offset/bodySize)*sectorSize + 100
		content[at] ^= 1
		if err := log.GetLog(index, &raft.Log{}); !errors.Is(err, ErrDamaged) {
			t.Errorf("entry %d: %v", index, err)
		}
		content[at] ^= 1
	}
}

// FuzzFile verifies that opening a file with any content terminates, with the log as it was or with an error.
func FuzzFile(f *testing.F) {
	f.Add(uint16(2), []byte{mark, 0, 0, 2})
	f.Add(uint16(1), blankBytes[:])
	f.Fuzz(func(t *testing.T, sector uint16, bytes []byte) {
		files, log, holds := marked(t)
		name := nameOf(log.current().sequence)
		copy(files[name][int(sector)%16*sectorSize:], bytes)
		l, err := Open(files.disk(), small)
		if err != nil {
			return
		}
		holds.last = min(holds.last, l.last())
		if err := holds.held(l); err != nil {
			t.Error(err)
		}
	})
}

// FuzzBatch verifies that a batch of arbitrary bytes is rejected, or encodes to the same bytes.
func FuzzBatch(f *testing.F) {
	f.Add([]byte{0, 0, 0, batchHeader, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1})
	sectors := make([]byte, 2*sectorSize)
	writeBatch(sectors, 5, []*raft.Log{{Index: 5, Term: 1, Data: []byte("data")}, {Index: 6, Term: 2, Data: make([]byte, 500)}})
	f.Add(strip(sectors))
	f.Fuzz(func(t *testing.T, stream []byte) {
		var entries []*raft.Log
		first, count, err := readBatch(stream, func(_, _ int, e *raft.Log) error {
			entries = append(entries, e)
			return nil
		})
		if err != nil {
			return
		}
		length := streamLength(entries)
		if int(count) != len(entries) || length > len(stream) {
			t.Fatalf("%d entries of %d, %d bytes of %d", len(entries), count, length, len(stream))
		}
		sectors := make([]byte, sectorsFor(length)*sectorSize)
		writeBatch(sectors, first, entries)
		if !slices.Equal(strip(sectors)[:length], stream[:length]) {
			t.Error("it is written otherwise")
		}
	})
}
