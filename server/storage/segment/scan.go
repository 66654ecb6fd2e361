package segment

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hashicorp/raft"
)

// place is the location of an entry.
type place struct {
	file   *file
	batch  uint32 // the sector with which its batch begins
	offset uint32 // in the stream of the batch, in bytes
	size   uint32 // in the stream, in bytes
}

// Position is how far a log has come. It only grows: nothing is overwritten, and a truncated log continues in
// another file.
type Position struct {
	File   uint64 // sequence of the last file
	Sector uint32 // the sector after its last batch
}

// Compare returns a negative number if p is before q, and a positive one if it is after q.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.File, q.File), cmp.Compare(p.Sector, q.Sector))
}

// found is a log as it is on the disk. Reading it changes nothing.
type found struct {
	dir Directory
	id  ID
	// files are the valid files, oldest first.
	files []*file
	// remnants are the names of files that are obsolete or were never finished.
	remnants []string
	// unfollowed is set if the second to last file does not know of the last one.
	unfollowed bool
	// unfinished is set if a batch that was never finished follows the end.
	unfinished bool
	lastBatch  uint32 // the sector with which it begins
	// marked is set if the last batch is known to have been acknowledged.
	marked bool

	places   []place
	first    uint64 // index of places[0]
	lastTerm uint64
	// written is the index of the last entry read, or of the entry after which the current file continues.
	written uint64
}

// find reads a whole log and visits its entries, whose data is valid only during the call of visit. It
// returns ErrDamaged if anything is not as it was written.
func find(dir Directory, id ID, reached Position, visit func(*raft.Log) error) (*found, error) {
	l := &found{dir: dir, id: id}
	err := l.open()
	for i := range l.files {
		if err == nil {
			err = l.readFile(i, visit)
		}
	}
	if err == nil && l.end().Compare(reached) < 0 {
		err = fmt.Errorf("%w: the log ends in file %d at sector %d, and had come to file %d, sector %d",
			ErrDamaged, l.end().File, l.end().Sector, reached.File, reached.Sector)
	}
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *found) close() (err error) {
	for _, f := range l.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

func (l *found) end() Position {
	last := l.files[len(l.files)-1]
	return Position{last.sequence, last.end}
}

// open opens the valid files.
func (l *found) open() error {
	names, err := l.dir.Names()
	if err != nil {
		return err
	}
	var sequences []uint64
	for _, name := range names {
		if sequence, ok := sequenceOf(name); ok {
			sequences = append(sequences, sequence)
		} else if strings.HasSuffix(name, suffix+unfinished) {
			l.remnants = append(l.remnants, name)
		}
	}
	slices.Sort(sequences)
	slices.Reverse(sequences)
	if len(sequences) == 0 {
		return fmt.Errorf("%w: the log is gone", ErrDamaged)
	}
	for i, sequence := range sequences {
		if i > 0 && l.files[0].after == 0 {
			l.remnants = append(l.remnants, nameOf(sequence))
			continue
		}
		if i > 0 && sequence+1 != l.files[0].sequence {
			return fmt.Errorf("%w: %s is gone", ErrDamaged, nameOf(sequence+1))
		}
		f, err := openFile(l.dir, l.id, sequence)
		if err != nil {
			return err
		}
		l.files = slices.Insert(l.files, 0, f)
	}
	return nil
}

// readFile reads a file. The next file says where it ends and which of its entries are valid.
func (l *found) readFile(i int, visit func(*raft.Log) error) error {
	f, later := l.files[i], l.files[i+1:]
	sectors, err := f.read(0, f.limit(later))
	if err != nil {
		return err
	}
	if err := l.checkFollowed(f, sectors, later); err != nil {
		return err
	}
	if i > 0 && f.after > l.written {
		return f.damaged("it goes on behind entry %d, and there is none behind %d", f.after, l.written)
	}
	l.written = f.after
	upTo := uint64(math.MaxUint64)
	for _, next := range later {
		upTo = min(upTo, next.after)
	}
	for {
		count, complete := f.batchAt(sectors, f.end)
		if !complete {
			break
		}
		if err := l.readBatch(f, sectors[f.end*sectorSize:][:count*sectorSize], upTo, visit); err != nil {
			return err
		}
		l.lastBatch = f.end
		f.end += count
	}
	f.last = min(l.written, upTo)
	if len(later) > 0 {
		if f.end != later[0].before {
			return f.damaged("the batch at sector %d is not whole", f.end)
		}
		return nil
	}
	l.unfinished, err = f.remains(sectors, f.end)
	if err == nil && l.unfollowed && (l.unfinished || f.end != firstBatch) {
		err = f.damaged("it was written to before the file before it knew of it")
	}
	return err
}

// limit returns the number of sectors of a file to read.
func (f *file) limit(later []*file) uint32 {
	if len(later) == 0 {
		return f.sectors
	}
	return min(max(later[0].before, firstBatch), f.sectors)
}

// checkFollowed checks what a file knows of its successor against the files found.
func (l *found) checkFollowed(f *file, sectors []byte, later []*file) error {
	knows, err := f.followed(sectors)
	switch {
	case err != nil:
		return err
	case len(later) == 0 && knows != blank:
		return fmt.Errorf("%w: %s is gone", ErrDamaged, nameOf(f.sequence+1))
	case len(later) > 1 && knows != whole:
		return f.damaged("the checksum of sector %d is wrong", followedSector)
	case len(later) == 1:
		l.unfollowed = knows != whole
	}
	return nil
}

// readBatch adds the entries of a batch up to an index.
func (l *found) readBatch(f *file, sectors []byte, upTo uint64, visit func(*raft.Log) error) error {
	first, count, err := readBatch(strip(sectors), func(offset, size int, e *raft.Log) error {
		if l.written != 0 && e.Index != l.written+1 || e.Index == 0 {
			return f.damaged("entry %d stands behind entry %d", e.Index, l.written)
		}
		l.written = e.Index
		if e.Index > upTo {
			return nil
		}
		if e.Term < l.lastTerm {
			return f.damaged("entry %d of term %d stands behind term %d", e.Index, e.Term, l.lastTerm)
		}
		if len(l.places) == 0 {
			l.first = e.Index
		}
		l.lastTerm = e.Term
		l.places = append(l.places, place{f, f.end, uint32(offset), uint32(size)})
		return visit(e)
	})
	l.marked = count == 0
	if errors.Is(err, errCutOff) || errors.Is(err, errLeftOver) || errors.Is(err, errWrongSize) {
		return f.damaged("the batch at sector %d, of %d entries from %d on: %v", f.end, count, first, err)
	}
	return err
}
