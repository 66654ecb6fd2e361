package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// The first sectors of a file. Like all others, each of them is written only once.
const (
	headerSector = 0
	// followedSector is blank in the last file. In the others it says that there is one more file.
	followedSector = 1
	firstBatch     = 2
)

const (
	suffix = ".segment"
	// unfinished is the suffix of a file's name until its header is on the disk.
	unfinished = ".new"

	magic   = "qlocklog"
	version = 1
)

// header is the header of a file. All numbers are big-endian:
//
//	"qlocklog" | version 4 | sectors 4 | log's id 8 | sequence 8 | after 8 | before 4
type header struct {
	sectors  uint32 // number of sectors in the file, including this one
	id       ID
	sequence uint64
	// after is the index of the last valid entry in the files before this one; 0 if there is none.
	after uint64
	// before is the sector at which the previous file ends.
	before uint32
}

func (h header) bytes() []byte {
	b := append(make([]byte, 0, bodySize), magic...)
	b = binary.BigEndian.AppendUint32(b, version)
	b = binary.BigEndian.AppendUint32(b, h.sectors)
	b = append(b, h.id[:]...)
	b = binary.BigEndian.AppendUint64(b, h.sequence)
	b = binary.BigEndian.AppendUint64(b, h.after)
	return binary.BigEndian.AppendUint32(b, h.before)
}

// readHeader decodes a header without checking it.
func readHeader(sector []byte) (h header, v uint32) {
	b := sector[bodyAt+len(magic):]
	v, h.sectors = binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	copy(h.id[:], b[8:])
	h.sequence, h.after, h.before = binary.BigEndian.Uint64(b[16:]), binary.BigEndian.Uint64(b[24:]), binary.BigEndian.Uint32(b[32:])
	return h, v
}

// file is a segment of a log.
type file struct {
	File
	header
	salt uint32
	// end is the sector after the last batch.
	end uint32
	// last is the index of the file's last valid entry, or a lower index if it has none.
	last uint64
}

func nameOf(sequence uint64) string { return fmt.Sprintf("%016d%s", sequence, suffix) }

// sequenceOf parses a file name. ok is false if it is not the name of a segment.
func sequenceOf(name string) (sequence uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return 0, false
	}
	sequence, err := strconv.ParseUint(digits, 10, 64)
	return sequence, err == nil && nameOf(sequence) == name
}

func (f *file) damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrDamaged, nameOf(f.sequence), fmt.Sprintf(format, args...))
}

// createFile creates a file, which gets its final name only when it is complete.
func createFile(dir Directory, h header) (f *file, err error) {
	name := nameOf(h.sequence)
	handle, err := dir.Create(name+unfinished, int64(h.sectors)*sectorSize)
	if err != nil {
		return nil, err
	}
	f = &file{File: handle, header: h, salt: saltOf(h.id, h.sequence), end: firstBatch, last: h.after}
	if err = f.writeSector(headerSector, h.bytes()); err == nil {
		err = dir.Rename(name+unfinished, name)
	}
	if err == nil {
		err = dir.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, handle.Close())
	}
	return f, nil
}

// writeSector writes a sector that is not part of a batch, and syncs it.
func (f *file) writeSector(number uint32, body []byte) error {
	sector := make([]byte, sectorSize)
	copy(sector[bodyAt:], body)
	seal(f.salt, number, sector)
	if _, err := f.WriteAt(sector, int64(number)*sectorSize); err != nil {
		return err
	}
	return f.Sync()
}

// follow records that there is one more file, and frees the unused space of this one.
func (f *file) follow() error {
	if err := f.writeSector(followedSector, binary.BigEndian.AppendUint64(nil, f.sequence+1)); err != nil {
		return err
	}
	return f.Truncate(int64(f.end) * sectorSize)
}

// followAgain is follow after a restart, when the next file has no batch. If a sector that was torn by a
// power failure were overwritten and torn again at another place, both of its marks would be there, and it
// would look damaged. So it is blanked first, whatever the kernel reads there, since the disk may have
// something else.
func (f *file) followAgain() error {
	if _, err := f.WriteAt(blankBytes[:], followedSector*sectorSize); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.follow()
}

// rewrite writes the last batch again with the same content, since a sync alone may skip data that an earlier
// sync failed to write.
func (f *file) rewrite(batch uint32) error {
	sectors, err := f.read(batch, f.end-batch)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(sectors, int64(batch)*sectorSize); err != nil {
		return err
	}
	return f.Sync()
}

// openFile opens a file and checks its header.
func openFile(dir Directory, id ID, sequence uint64) (*file, error) {
	handle, err := dir.Open(nameOf(sequence))
	if err != nil {
		return nil, err
	}
	f := &file{File: handle, header: header{id: id, sequence: sequence}, salt: saltOf(id, sequence)}
	if err := f.readHeader(); err != nil {
		return nil, errors.Join(err, handle.Close())
	}
	return f, nil
}

func (f *file) readHeader() error {
	sectors, err := f.read(headerSector, 1)
	if err != nil {
		return err
	}
	h, v := readHeader(sectors)
	start, is := look(f.salt, headerSector, sectors)
	switch {
	case is != whole || start != headerSector || string(sectors[bodyAt:][:len(magic)]) != magic:
		return f.damaged("the checksum of its header is wrong, or it belongs to another log")
	case v > version:
		return fmt.Errorf("%s has format %d, this program reads up to %d: upgrade it", nameOf(f.sequence), v, version)
	case h.id != f.id || h.sequence != f.sequence || h.sectors < firstBatch || h.sectors > maxSectors:
		return f.damaged("its header is of another file")
	}
	f.header, f.end, f.last = h, firstBatch, h.after
	return nil
}

// read reads sectors that must exist.
func (f *file) read(number, count uint32) ([]byte, error) {
	sectors := make([]byte, int(count)*sectorSize)
	n, err := f.ReadAt(sectors, int64(number)*sectorSize)
	switch {
	case n == len(sectors):
		return sectors, nil
	case errors.Is(err, io.EOF):
		return nil, f.damaged("it is cut off: it has %d bytes", int(number)*sectorSize+n)
	}
	return nil, err
}

// followed returns the state of followedSector, which says whether there is one more file. sectors are the
// sectors of the file.
func (f *file) followed(sectors []byte) (state, error) {
	sector := sectors[followedSector*sectorSize:][:sectorSize]
	start, is := look(f.salt, followedSector, sector)
	if is == spoiled || is == whole && (start != followedSector || binary.BigEndian.Uint64(sector[bodyAt:]) != f.sequence+1) {
		return is, f.damaged("the checksum of sector %d is wrong", followedSector)
	}
	return is, nil
}

// batchAt returns the number of sectors of the batch that begins at sector at. complete is false if one of
// them is not whole.
func (f *file) batchAt(sectors []byte, at uint32) (count uint32, complete bool) {
	total := uint32(len(sectors) / sectorSize)
	if at >= total || !f.belongs(sectors, at, at) {
		return 0, false
	}
	length, err := batchLength(sectors[at*sectorSize+bodyAt:][:bodySize])
	if err != nil {
		return 0, false
	}
	count = uint32(sectorsFor(length))
	if count > total-at {
		return count, false
	}
	for number := at + 1; number < at+count; number++ {
		if !f.belongs(sectors, number, at) {
			return count, false
		}
	}
	return count, true
}

// belongs reports whether a sector is whole and part of the batch that begins at start.
func (f *file) belongs(sectors []byte, number, start uint32) bool {
	begins, is := look(f.salt, number, sectors[number*sectorSize:][:sectorSize])
	return is == whole && begins == start
}

// remains checks what follows the last complete batch of the last file: nothing, or the remains of a batch
// that was never finished. Anything else is damage. A batch that begins at sector at is known to be
// incomplete.
func (f *file) remains(sectors []byte, at uint32) (unfinished bool, err error) {
	count, _ := f.batchAt(sectors, at)
	total := uint32(len(sectors) / sectorSize)
	switch {
	case at == total:
		return false, nil
	case f.belongs(sectors, at, at) && (count == 0 || count > total-at):
		return false, f.damaged("the batch at sector %d has an impossible length", at)
	case count == 0:
		count = total - at // the first sector is missing, so the length is unknown
	}
	for number := at; number < total; number++ {
		start, is := look(f.salt, number, sectors[number*sectorSize:][:sectorSize])
		switch {
		case is == spoiled:
			return false, f.damaged("the checksum of sector %d is wrong", number)
		case is == whole && start != at:
			return false, f.damaged("the batch at sector %d is gone, and one behind it, at %d, is not", at, start)
		case is != blank && number >= at+count:
			return false, f.damaged("sector %d stands behind the last batch", number)
		}
		unfinished = unfinished || is != blank
	}
	return unfinished, nil
}
