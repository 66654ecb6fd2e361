package segment

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// A sector is what a disk writes whole. Each one of a file proves itself:
//
//	mark 1 | start 3 | checksum 4 | body 503 | mark 1
//
// start is the number of the sector with which the batch begins. The checksum is the CRC-32C
// of the log's id, 8 bytes, the file's sequence, 8, and the sector, with its own number in the
// file, 4, where the checksum comes to stand. So no other sector can pass for this one.
const (
	sectorSize = 512
	bodyAt     = 8
	bodySize   = sectorSize - bodyAt - 1
	// mark stands at both ends, so that neither is zero. It takes more than one flipped bit
	// to make it so.
	mark = 0xA5
	// maxSectors is how many a file can have: start has 24 bits, and 32 are for every offset.
	maxSectors = 1 << 22
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	blankBytes [sectorSize]byte
)

// state is what a sector looks like.
type state int

const (
	// blank sectors were never written, or that write did not reach the disk.
	blank state = iota
	// torn ones have a zero where a mark belongs: a write ended, or began, within them.
	torn
	// whole ones are as they were written.
	whole
	// spoiled ones were written, and are not what was written.
	spoiled
)

// ID tells one log from another.
type ID [8]byte

// saltOf is where the checksums of a file begin.
func saltOf(id ID, sequence uint64) uint32 {
	return crc32.Checksum(binary.BigEndian.AppendUint64(id[:], sequence), castagnoli)
}

// checksum is that of a sector with this number, which stands in the checksum's own place
// meanwhile.
func checksum(salt, number uint32, sector []byte) uint32 {
	place := sector[4:bodyAt]
	stored := binary.BigEndian.Uint32(place)
	binary.BigEndian.PutUint32(place, number)
	sum := crc32.Update(salt, castagnoli, sector)
	binary.BigEndian.PutUint32(place, stored)
	return sum
}

// seal finishes sectors whose bodies are there: they are numbered from start on, and are
// one batch.
func seal(salt, start uint32, sectors []byte) {
	for number := start; len(sectors) > 0; number++ {
		s := sectors[:sectorSize]
		binary.BigEndian.PutUint32(s, mark<<24|start)
		s[sectorSize-1] = mark
		binary.BigEndian.PutUint32(s[4:], checksum(salt, number, s))
		sectors = sectors[sectorSize:]
	}
}

// look tells what a sector is and, if it is whole, where its batch begins.
func look(salt, number uint32, sector []byte) (start uint32, is state) {
	head := binary.BigEndian.Uint32(sector)
	first, last := sector[0], sector[sectorSize-1]
	switch {
	case first == mark && last == mark && checksum(salt, number, sector) == binary.BigEndian.Uint32(sector[4:]):
		return head & 0xFFFFFF, whole
	case bytes.Equal(sector, blankBytes[:]):
		return 0, blank
	case first == 0 || last == 0:
		return 0, torn
	}
	return 0, spoiled
}

// sectorsFor is how many sectors so many bytes need.
func sectorsFor(length int) int { return (length + bodySize - 1) / bodySize }

// layer lays a stream of bytes out in the bodies of sectors.
type layer struct {
	sectors []byte
	at      int // bytes of the stream so far
}

func (l *layer) put(p []byte) {
	for len(p) > 0 {
		body := l.sectors[l.at/bodySize*sectorSize+bodyAt:][:bodySize]
		n := copy(body[l.at%bodySize:], p)
		l.at += n
		p = p[n:]
	}
}

// strip moves the bodies of sectors together, over the sectors themselves.
func strip(sectors []byte) []byte {
	count := len(sectors) / sectorSize
	for i := range count {
		copy(sectors[i*bodySize:(i+1)*bodySize], sectors[i*sectorSize+bodyAt:])
	}
	return sectors[:count*bodySize]
}
