package judge

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"
)

// Constants of the segment format, from docs/PROTOCOL.md.
const (
	sectorBytes = 512
	bodyFrom    = 8
	bodyTo      = 511
	batchFrom   = 2
)

// segmentFile is one file of a log.
type segmentFile struct {
	name     string
	data     []byte
	salt     uint32
	sequence uint64
	after    uint64 // the last valid entry before it, 0 for none
	before   uint32 // the sector at which the previous file ends
}

// readSegments reads the log with the given ID.
func readSegments(dir string, id []byte) (map[uint64]*raft.Log, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.segment"))
	if err != nil {
		return nil, err
	}
	var files []segmentFile
	for _, name := range names { // Glob returns them in order
		f, err := readSegment(name, id)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if f.after == 0 {
			files = nil // earlier files are obsolete
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: there are no segments", dir)
	}
	all := map[uint64]*raft.Log{}
	for i, f := range files {
		upTo, end := uint64(math.MaxUint64), uint32(0)
		for _, later := range files[i+1:] {
			upTo, end = min(upTo, later.after), cmp.Or(end, later.before)
		}
		if i > 0 && f.sequence != files[i-1].sequence+1 {
			return nil, fmt.Errorf("%s: the one before it is missing", f.name)
		}
		if err := f.entries(end, func(l *raft.Log) {
			if l.Index <= upTo {
				all[l.Index] = l
			}
		}); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return all, nil
}

func readSegment(name string, id []byte) (f segmentFile, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return f, err
	}
	f = segmentFile{name: name, data: data}
	if _, err := fmt.Sscanf(filepath.Base(name), "%d.segment", &f.sequence); err != nil {
		return f, err
	}
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	f.salt = crc32.Checksum(binary.BigEndian.AppendUint64(bytes.Clone(id), f.sequence), castagnoli)
	body, start, ok := f.sector(0)
	if !ok || start != 0 || string(body[:8]) != "qlocklog" || !bytes.Equal(body[16:24], id) || binary.BigEndian.Uint64(body[24:]) != f.sequence {
		return f, errors.New("its header is not its own")
	}
	f.after, f.before = binary.BigEndian.Uint64(body[32:]), binary.BigEndian.Uint32(body[40:])
	return f, nil
}

// sector returns a sector's body and the first sector of its batch. ok reports whether the sector is intact.
func (f segmentFile) sector(number uint32) (body []byte, start uint32, ok bool) {
	at := int(number) * sectorBytes
	if at+sectorBytes > len(f.data) {
		return nil, 0, false
	}
	s := bytes.Clone(f.data[at : at+sectorBytes])
	sum := binary.BigEndian.Uint32(s[4:])
	binary.BigEndian.PutUint32(s[4:], number)
	ok = s[0] == 0xA5 && s[511] == 0xA5 && sum == crc32.Update(f.salt, crc32.MakeTable(crc32.Castagnoli), s)
	return s[bodyFrom:bodyTo], binary.BigEndian.Uint32(s) & 0xFFFFFF, ok
}

// entries visits the entries of all batches up to sector end or, if end is 0, up to the first batch that is
// not intact.
func (f segmentFile) entries(end uint32, visit func(*raft.Log)) error {
	at := uint32(batchFrom)
	for end == 0 || at < end {
		stream, sectors, ok := f.batch(at)
		if !ok {
			break
		}
		count, index := binary.BigEndian.Uint32(stream[4:]), binary.BigEndian.Uint64(stream[8:])
		rest := stream[16:binary.BigEndian.Uint32(stream)]
		for ; count > 0; count-- {
			if len(rest) < 21 || uint64(len(rest)-21) < uint64(binary.BigEndian.Uint32(rest)) {
				return fmt.Errorf("entry %d is cut off", index)
			}
			size := 21 + int(binary.BigEndian.Uint32(rest))
			visit(&raft.Log{Index: index, Term: binary.BigEndian.Uint64(rest[4:]), Type: raft.LogType(rest[12]), Data: bytes.Clone(rest[21:size])})
			rest, index = rest[size:], index+1
		}
		at += sectors
	}
	if end != 0 && at != end {
		return fmt.Errorf("the batch at sector %d is not whole", at)
	}
	return nil
}

// batch returns the stream of the batch that begins at a sector.
func (f segmentFile) batch(at uint32) (stream []byte, sectors uint32, ok bool) {
	body, start, ok := f.sector(at)
	if !ok || start != at {
		return nil, 0, false
	}
	length := binary.BigEndian.Uint32(body)
	sectors = uint32((uint64(length) + bodyTo - bodyFrom - 1) / (bodyTo - bodyFrom))
	stream = slices.Clone(body)
	for number := at + 1; number < at+sectors; number++ {
		body, start, ok := f.sector(number)
		if !ok || start != at {
			return nil, 0, false
		}
		stream = append(stream, body...)
	}
	return stream, sectors, length >= 16
}
