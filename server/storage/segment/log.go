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
	// defaultSize is the default size of a file, in bytes.
	defaultSize = 16 << 20
	// keptBuffer bounds the size of the batch buffer that is kept for reuse, in bytes.
	keptBuffer = 1 << 20
)

var (
	// ErrDamaged is returned when part of the log is missing or is not what was written.
	ErrDamaged = errors.New("the data directory is damaged")

	errGap     = errors.New("entries of a batch do not follow each other")
	errOverlap = errors.New("the log has an entry of that index")
	errTooLong = errors.New("the batch is too long for a file")
	errMiddle  = errors.New("entries in the middle of the log cannot be deleted")
)

// Options configures how a log is opened.
type Options struct {
	// ID is the ID of the log.
	ID ID
	// Reached is a position that the log had reached. A log that ends before it is damaged.
	Reached Position
	// Size is the size of a file in bytes; default 16 MiB. A batch that needs more gets a larger file.
	Size int64
	// Rest is the time without writes after which the end of the log is marked. With 0, only Mark marks it.
	Rest time.Duration
	// Failed is called if marking after Rest failed, since no caller gets that error.
	Failed func(error)
	// Logger is notified of writes that are cut off; nil discards the messages.
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

// Log is raft's log in segment files. It implements raft.LogStore and is safe for concurrent use. Reads do
// not wait for writes. Everything that can be read is on the disk.
//
// After a failed write, all further writes fail. What was acknowledged before can still be read.
type Log struct {
	dir     Directory
	options Options

	writing sync.Mutex // held by writers; guards the fields below
	broken  error      // why nothing more is written
	marked  bool       // nothing was written since the end was marked
	buffer  []byte
	rest    *time.Timer // nil if the end is not marked between writes

	// mu guards the fields below. They change only while writing is held as well.
	mu     sync.RWMutex
	files  []*file // oldest first; the last one is written to
	first  uint64  // index of places[0]
	places []place
}

// Create creates an empty log in a directory, replacing any log there.
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

// Open opens a log and reads all of it. A batch at its end that was never finished is cut off. Open returns
// ErrDamaged or an error of the disk.
func Open(dir Directory, options Options) (*Log, error) {
	options = options.withDefaults()
	found, err := find(dir, options.ID, options.Reached, func(*raft.Log) error { return nil })
	if err != nil {
		return nil, err
	}
	l := &Log{dir: dir, options: options, files: found.files, first: found.first, places: found.places, marked: found.marked}
	if err := l.finishRecovery(found); err != nil {
		return nil, errors.Join(err, l.closeFiles())
	}
	return begin(l), nil
}

// Read visits the entries of a log in order without changing it. The log must not be written to meanwhile.
// Read returns ErrDamaged, an error of the disk, or the first error of visit.
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

// finishRecovery completes what was in progress when the log was last written to, and makes everything found durable:
// an earlier process may have ended before its last sync, or because that sync failed, and then only the
// kernel has its data.
func (l *Log) finishRecovery(found *found) error {
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
	} else if len(l.files) > 1 && !found.unfinished { // an unfinished batch implies that followedSector was synced before
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

// last returns the index of the last entry, 0 if there is none.
func (l *Log) last() uint64 {
	if len(l.places) == 0 {
		return 0
	}
	return l.first + uint64(len(l.places)) - 1
}

// ID returns the ID that the log was opened with.
func (l *Log) ID() ID { return l.options.ID }

// End returns the position after everything that is on the disk.
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

// LastIndex implements raft.LogStore. The log is durable up to that index.
func (l *Log) LastIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.last(), nil
}

// GetLog implements raft.LogStore.
func (l *Log) GetLog(index uint64, e *raft.Log) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	at := index - l.first // wraps around if index is below first
	if at >= uint64(len(l.places)) {
		return raft.ErrLogNotFound
	}
	return l.places[at].read(index, e)
}

// read reads the sectors that contain an entry.
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

// StoreLogs implements raft.LogStore. Entries that do not continue the log replace it: raft writes such
// entries only after a snapshot, which contains everything before them.
func (l *Log) StoreLogs(entries []*raft.Log) error {
	if len(entries) == 0 {
		return nil
	}
	return l.write(func() error { return l.append(entries) })
}

// write runs do under the writing lock, unless an earlier write failed.
func (l *Log) write(do func() error) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.broken != nil {
		return fmt.Errorf("the log accepts no more entries: %w", l.broken)
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
	case first <= last: // also true for index 0 in an empty log
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

// makeRoom continues in another file if needed. Entries after last become invalid.
func (l *Log) makeRoom(last uint64, room uint32) error {
	f := l.current()
	if last == l.last() && room <= f.sectors-f.end {
		return nil
	}
	return l.roll(last, room)
}

// writeBatch does one write and one sync. Only then does the batch become part of the log.
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

// count adds a batch that is on the disk to the log.
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

// roll continues in a new file after the entry with index after. Later entries in the older files become
// invalid; with 0, all entries do. The change is atomic: it takes effect if and only if the new file exists.
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

// sectorsOf returns the number of sectors in a file of that size, with room for a batch of room sectors.
func sectorsOf(size int64, room uint32) uint32 {
	return uint32(min(maxSectors, max(size/sectorSize, firstBatch+int64(room), firstBatch+1)))
}

// drop removes the oldest files one by one, so that there is never a gap.
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

// DeleteRange implements raft.LogStore. Entries at the end are gone once it returns. Entries at the beginning
// may reappear when the log is opened, as long as their file has entries that are still needed.
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

// Mark records that the last batch was acknowledged, unless that is already recorded. From then on any damage
// to that batch is detected.
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

// markAtRest is called by the timer when nothing was written for Options.Rest.
func (l *Log) markAtRest() {
	if err := l.Mark(); err != nil && !errors.Is(err, os.ErrClosed) {
		l.options.Failed(err)
	}
}

// Close closes the files. It writes nothing; call Mark before it.
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
