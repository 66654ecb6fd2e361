package segment

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// A sector is the unit that a disk writes atomically. Each sector of a file can be verified by itself:
//
//	mark 1 | start 3 | checksum 4 | body 503 | mark 1
//
// start is the number of the sector with which the batch begins. The checksum is the CRC-32C of the log's id
// (8 bytes), the file's sequence (8) and the sector, whose own number in the file (4) replaces the checksum
// field for the computation. So no other sector can be mistaken for this one.
const (
	sectorSize = 512
	bodyAt     = 8
	bodySize   = sectorSize - bodyAt - 1
	// mark is the value of both ends, so that neither is zero. It takes more than one flipped bit to turn it
	// into zero.
	mark = 0xA5
	// maxSectors bounds the sectors of a file: start has 24 bits, and every byte offset must fit into 32.
	maxSectors = 1 << 22
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	blankBytes [sectorSize]byte
)

// state is the state of a sector.
type state int

const (
	// blank: the sector was never written, or the write did not reach the disk.
	blank state = iota
	// torn: a zero replaces one of the marks, because a write ended or began within the sector.
	torn
	// whole: the sector is as it was written.
	whole
	// spoiled: the sector was written, but is not as it was written.
	spoiled
)

// ID identifies a log.
type ID [8]byte

// saltOf returns the initial value of a file's checksums.
func saltOf(id ID, sequence uint64) uint32 {
	return crc32.Checksum(binary.BigEndian.AppendUint64(id[:], sequence), castagnoli)
}

// checksum returns the checksum of the sector with this number. During the computation, the number replaces
// the checksum field of the sector.
func checksum(salt, number uint32, sector []byte) uint32 {
	place := sector[4:bodyAt]
	stored := binary.BigEndian.Uint32(place)
	binary.BigEndian.PutUint32(place, number)
	sum := crc32.Update(salt, castagnoli, sector)
	binary.BigEndian.PutUint32(place, stored)
	return sum
}

// seal completes the sectors of one batch, whose bodies are filled in. They are numbered from start on.
func seal(salt, start uint32, sectors []byte) {
	for number := start; len(sectors) > 0; number++ {
		s := sectors[:sectorSize]
		binary.BigEndian.PutUint32(s, mark<<24|start)
		s[sectorSize-1] = mark
		binary.BigEndian.PutUint32(s[4:], checksum(salt, number, s))
		sectors = sectors[sectorSize:]
	}
}

// look returns the state of a sector and, if it is whole, the sector where its batch begins.
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

// sectorsFor returns the number of sectors for length bytes.
func sectorsFor(length int) int { return (length + bodySize - 1) / bodySize }

// layer lays out a stream of bytes in the bodies of sectors.
type layer struct {
	sectors []byte
	at      int // bytes of the stream written so far
}

func (l *layer) put(p []byte) {
	for len(p) > 0 {
		body := l.sectors[l.at/bodySize*sectorSize+bodyAt:][:bodySize]
		n := copy(body[l.at%bodySize:], p)
		l.at += n
		p = p[n:]
	}
}

// strip moves the bodies of sectors together, in place.
func strip(sectors []byte) []byte {
	count := len(sectors) / sectorSize
	for i := range count {
		copy(sectors[i*bodySize:(i+1)*bodySize], sectors[i*sectorSize+bodyAt:])
	}
	return sectors[:count*bodySize]
}
