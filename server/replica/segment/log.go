package segment

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	// defaultSize of a file, in bytes.
	defaultSize = 16 << 20
	// keptBuffer is how much of what a batch was put together in is kept for the next one.
	keptBuffer = 1 << 20
)

var (
	// ErrDamaged is returned when part of the log is missing or not what was written.
	ErrDamaged = errors.New("the data directory is damaged")

	errGap     = errors.New("entries of a batch do not follow each other")
	errOverlap = errors.New("the log has an entry of that index")
	errTooLong = errors.New("the batch is too long for a file")
	errMiddle  = errors.New("entries in the middle of the log cannot be deleted")
)

// Options say how a log is opened.
type Options struct {
	// ID is that of the log.
	ID ID
	// Reached is a position to which the log had come: one that ends before it is damaged.
	Reached Position
	// Size of a file in bytes; default 16 MiB. A batch that needs more gets it.
	Size int64
	// Rest is how long nothing has to be written before the end of the log is marked; 0 is
	// only when Mark says so.
	Rest time.Duration
	// Failed is told if that marking failed, which nobody else has asked for.
	Failed func(error)
	// Logger is told of what is cut off; default is silence.
	Logger hclog.Logger
}

func (o Options) withDefaults() Options {
	o.Size = cmp.Or(o.Size, defaultSize)
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	return o
}

// Log is raft's log in segment files. It implements raft.LogStore, and is safe for concurrent
// use. Whoever reads does not wait for who writes. Everything that can be read is on the disk.
//
// After a write that failed, all others do. What was acknowledged before can still be read.
type Log struct {
	dir     Directory
	options Options

	writing sync.Mutex // taken by who writes; guards what follows
	broken  error      // why nothing is written any more
	marked  bool       // nothing was written since the end was marked
	buffer  []byte
	rest    *time.Timer // nil if the end is not marked between writes

	// mu guards what follows, which changes only while writing is taken, too.
	mu     sync.RWMutex
	files  []*file // the oldest first; the last one is written to
	first  uint64  // index of places[0]
	places []place
}

// Create makes an empty log in a directory, in place of whatever log is there.
func Create(dir Directory, options Options) (*Log, error) {
	options = options.withDefaults()
	names, err := dir.Names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := dir.Remove(name); err != nil {
			return nil, err
		}
	}
	if err := dir.Sync(); err != nil {
		return nil, err
	}
	f, err := createFile(dir, header{id: options.ID, sequence: 1, sectors: sectorsOf(options.Size, 0)})
	if err != nil {
		return nil, err
	}
	return begin(&Log{dir: dir, options: options, files: []*file{f}, marked: true}), nil
}

// Open opens a log and reads all of it. A batch at its end that was never finished is cut
// off. Errors: ErrDamaged, and those of the disk.
func Open(dir Directory, options Options) (*Log, error) {
	options = options.withDefaults()
	found, err := find(dir, options.ID, options.Reached, func(*raft.Log) error { return nil })
	if err != nil {
		return nil, err
	}
	l := &Log{dir: dir, options: options, files: found.files, first: found.first, places: found.places, marked: found.marked}
	if err := l.settle(found); err != nil {
		return nil, errors.Join(err, l.closeFiles())
	}
	return begin(l), nil
}

// Read visits the entries of a log that nobody writes to, in order, and changes nothing.
// Errors: ErrDamaged, those of the disk, and that of visit, which ends it.
func Read(dir Directory, options Options, visit func(*raft.Log) error) error {
	found, err := find(dir, options.ID, options.Reached, func(e *raft.Log) error {
		own := *e
		own.Data = append([]byte{}, e.Data...)
		return visit(&own)
	})
	if err != nil {
		return err
	}
	return found.close()
}

func begin(l *Log) *Log {
	if l.options.Rest > 0 {
		l.rest = time.AfterFunc(l.options.Rest, l.markAtRest)
	}
	return l
}

// settle finishes what was under way when the log was last written to, and has the disk know
// all that was found: an earlier process may have ended before its last sync, or because
// that failed, and then only the kernel has what it wrote.
func (l *Log) settle(found *found) error {
	for _, name := range found.remnants {
		if err := l.dir.Remove(name); err != nil {
			return err
		}
	}
	if err := l.dir.Sync(); err != nil {
		return err
	}
	f := l.current()
	if f.end != firstBatch {
		if err := f.rewrite(found.lastBatch); err != nil {
			return err
		}
	} else if len(l.files) > 1 && !found.unfinished { // else the disk knows of this file
		if err := l.files[len(l.files)-2].followAgain(); err != nil {
			return err
		}
	}
	if !found.unfinished {
		return nil
	}
	l.options.Logger.Info("cut off a write that was never acknowledged", "file", nameOf(f.sequence), "sector", f.end, "last", l.last())
	return l.roll(l.last(), 0)
}

func (l *Log) current() *file { return l.files[len(l.files)-1] }

// last is the index of the last entry, 0 if there is none.
func (l *Log) last() uint64 {
	if len(l.places) == 0 {
		return 0
	}
	return l.first + uint64(len(l.places)) - 1
}

// ID is the id that the log was opened with.
func (l *Log) ID() ID { return l.options.ID }

// End is the position behind everything that is on the disk.
func (l *Log) End() Position {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return Position{l.current().sequence, l.current().end}
}

// FirstIndex implements raft.LogStore.
func (l *Log) FirstIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.places) == 0 {
		return 0, nil
	}
	return l.first, nil
}

// LastIndex implements raft.LogStore. The log is durable up to there.
func (l *Log) LastIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.last(), nil
}

// GetLog implements raft.LogStore.
func (l *Log) GetLog(index uint64, e *raft.Log) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	at := index - l.first // a large one, if it is before
	if at >= uint64(len(l.places)) {
		return raft.ErrLogNotFound
	}
	return l.places[at].read(index, e)
}

// read reads the sectors that an entry lies in.
func (p place) read(index uint64, e *raft.Log) error {
	from, to := p.offset/bodySize, (p.offset+p.size-1)/bodySize
	sectors, err := p.file.read(p.batch+from, to-from+1)
	if err != nil {
		return err
	}
	for i := range to - from + 1 {
		start, is := look(p.file.salt, p.batch+from+i, sectors[i*sectorSize:][:sectorSize])
		if is != whole || start != p.batch {
			return p.file.damaged("the checksum of sector %d, with log entry %d, is wrong", p.batch+from+i, index)
		}
	}
	stream := strip(sectors)[p.offset%bodySize:]
	if size, err := readEntry(stream, index, e); err != nil || size != int(p.size) {
		return p.file.damaged("log entry %d at sector %d has %d bytes", index, p.batch+from, size)
	}
	return nil
}

// StoreLog implements raft.LogStore.
func (l *Log) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// StoreLogs implements raft.LogStore. Entries that do not follow the last one begin the log
// anew: raft writes such only behind a snapshot, which has all that was before.
func (l *Log) StoreLogs(entries []*raft.Log) error {
	if len(entries) == 0 {
		return nil
	}
	return l.write(func() error { return l.append(entries) })
}

// write has its turn, unless an earlier one failed.
func (l *Log) write(do func() error) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.broken != nil {
		return fmt.Errorf("the log takes no more: %w", l.broken)
	}
	l.broken = do()
	return l.broken
}

func (l *Log) append(entries []*raft.Log) error {
	first, last := entries[0].Index, l.last()
	for i, e := range entries {
		if e.Index != first+uint64(i) {
			return errGap
		}
	}
	room := sectorsFor(streamLength(entries))
	switch {
	case first <= last: // also 0, in an empty log
		return fmt.Errorf("%w: %d", errOverlap, first)
	case room > maxSectors-firstBatch:
		return errTooLong
	case last != 0 && first != last+1:
		last = 0
	}
	if err := l.makeRoom(last, uint32(room)); err != nil {
		return err
	}
	l.marked = false
	if err := l.writeBatch(first, entries, uint32(room)); err != nil {
		return err
	}
	if l.rest != nil {
		l.rest.Reset(l.options.Rest)
	}
	return nil
}

// makeRoom goes on in another file if that is needed. Of the entries, those up to last count.
func (l *Log) makeRoom(last uint64, room uint32) error {
	f := l.current()
	if last == l.last() && room <= f.sectors-f.end {
		return nil
	}
	return l.roll(last, room)
}

// writeBatch is one write and one sync. Only then does the batch count.
func (l *Log) writeBatch(first uint64, entries []*raft.Log, room uint32) error {
	size := int(room) * sectorSize
	if cap(l.buffer) < size {
		l.buffer = make([]byte, size)
	}
	f, sectors := l.current(), l.buffer[:size]
	clear(sectors[size-sectorSize:])
	writeBatch(sectors, first, entries)
	seal(f.salt, f.end, sectors)
	if cap(l.buffer) > keptBuffer {
		l.buffer = nil
	}
	if _, err := f.WriteAt(sectors, int64(f.end)*sectorSize); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	l.count(f, first, entries, room)
	return nil
}

// count has a batch that is on the disk be part of the log.
func (l *Log) count(f *file, first uint64, entries []*raft.Log, room uint32) {
	places, offset := l.places, uint32(batchHeader)
	for _, e := range entries {
		p := place{f, f.end, offset, uint32(entryHeader + len(e.Data))}
		places = append(places, p)
		offset += p.size
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.places) == 0 {
		l.first = first
	}
	l.places = places
	f.end += room
	f.last = l.last()
}

// roll goes on in a new file, behind the entry with index after. What is behind that in the
// older files counts no more, and with 0 nothing that is in them does. Either all of this
// has happened, if the new file is there, or nothing.
func (l *Log) roll(after uint64, room uint32) error {
	old := l.current()
	next, err := createFile(l.dir, header{
		sectors: sectorsOf(l.options.Size, room), id: l.options.ID, sequence: old.sequence + 1, after: after, before: old.end,
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.files = append(l.files, next)
	for _, f := range l.files {
		f.last = min(f.last, after)
	}
	if after == 0 {
		l.places = nil
	} else if after < l.last() {
		l.places = l.places[:after-l.first+1]
	}
	l.mu.Unlock()
	if err := old.follow(); err != nil {
		return err
	}
	if after != 0 {
		return nil
	}
	return l.drop(len(l.files) - 1)
}

// sectorsOf is how many a file of that size has, with room for a batch.
func sectorsOf(size int64, room uint32) uint32 {
	return uint32(min(maxSectors, max(size/sectorSize, firstBatch+int64(room), firstBatch+1)))
}

// drop removes the oldest files, one after the other, so that there is never a gap.
func (l *Log) drop(count int) error {
	for range count {
		f := l.files[0]
		l.mu.Lock()
		l.files = l.files[1:]
		l.mu.Unlock()
		err := errors.Join(f.Close(), l.dir.Remove(nameOf(f.sequence)))
		if err == nil {
			err = l.dir.Sync()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// DeleteRange implements raft.LogStore. Entries at the end are gone once it returns. Those at
// the beginning may come again when the log is opened, as long as others share their file.
func (l *Log) DeleteRange(lowest, highest uint64) error {
	return l.write(func() error { return l.delete(lowest, highest) })
}

func (l *Log) delete(lowest, highest uint64) error {
	last := l.last()
	switch {
	case last == 0 || highest < l.first || lowest > last || lowest > highest:
		return nil
	case lowest <= l.first && highest >= last:
		return l.roll(0, 0)
	case highest >= last:
		return l.roll(lowest-1, 0)
	case lowest > l.first:
		return errMiddle
	}
	l.mu.Lock()
	l.places = l.places[highest+1-l.first:]
	l.first = highest + 1
	l.mu.Unlock()
	return l.drop(sort.Search(len(l.files)-1, func(i int) bool { return l.files[i].last >= l.first }))
}

// Mark writes down that the last batch was acknowledged, if nothing has done so yet. Whatever
// becomes of that batch is noticed from then on.
func (l *Log) Mark() error { return l.write(l.mark) }

func (l *Log) mark() error {
	if l.marked {
		return nil
	}
	if err := l.makeRoom(l.last(), 1); err != nil {
		return err
	}
	l.marked = true
	return l.writeBatch(l.last()+1, nil, 1)
}

// markAtRest runs on its own when nothing was written for a while.
func (l *Log) markAtRest() {
	if err := l.Mark(); err != nil && !errors.Is(err, os.ErrClosed) {
		l.options.Failed(err)
	}
}

// Close closes the files. It writes nothing: Mark does, before.
func (l *Log) Close() error {
	if l.rest != nil {
		l.rest.Stop()
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	if errors.Is(l.broken, os.ErrClosed) {
		return nil
	}
	l.broken = os.ErrClosed
	return l.closeFiles()
}

func (l *Log) closeFiles() (err error) {
	for _, f := range l.files {
		err = errors.Join(err, f.Close())
	}
	return err
}
