package segment

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// A batch is what one StoreLogs writes. It is a stream of bytes that fills the bodies of consecutive sectors,
// 503 bytes each, and is padded with zeros. All numbers are big-endian. The stream begins with
//
//	length of the stream 4 | number of entries 4 | index of the first 8
//
// followed for each entry by
//
//	length of the data 4 | term 8 | type 1 | when the leader appended it 8 | data
//
// The time is in nanoseconds since 1970, or 0. A batch without entries only marks that everything before it
// was acknowledged.
const (
	batchHeader = 4 + 4 + 8
	entryHeader = 4 + 8 + 1 + 8
)

var (
	errCutOff    = errors.New("it is cut off")
	errLeftOver  = errors.New("bytes are left over")
	errWrongSize = errors.New("its length is impossible")
)

// streamLength returns the length of the batch of these entries, in bytes.
func streamLength(entries []*raft.Log) int {
	length := batchHeader
	for _, e := range entries {
		length += entryHeader + len(e.Data)
	}
	return length
}

// writeBatch lays out a batch in sectors, which have room for it. The last sector must be blank.
func writeBatch(sectors []byte, first uint64, entries []*raft.Log) {
	out := layer{sectors: sectors}
	var head [batchHeader]byte
	binary.BigEndian.PutUint32(head[:], uint32(streamLength(entries)))
	binary.BigEndian.PutUint32(head[4:], uint32(len(entries)))
	binary.BigEndian.PutUint64(head[8:], first)
	out.put(head[:])
	for _, e := range entries {
		var head [entryHeader]byte
		binary.BigEndian.PutUint32(head[:], uint32(len(e.Data)))
		binary.BigEndian.PutUint64(head[4:], e.Term)
		head[12] = byte(e.Type)
		if !e.AppendedAt.IsZero() {
			binary.BigEndian.PutUint64(head[13:], uint64(e.AppendedAt.UnixNano()))
		}
		out.put(head[:])
		out.put(e.Data)
	}
}

// batchLength returns the length of the stream that begins with these bytes.
func batchLength(stream []byte) (int, error) {
	if len(stream) < batchHeader {
		return 0, errCutOff
	}
	length := int(binary.BigEndian.Uint32(stream))
	if length < batchHeader || sectorsFor(length) > maxSectors {
		return 0, errWrongSize
	}
	return length, nil
}

// readBatch visits the entries of a batch. Their data shares memory with the stream.
func readBatch(stream []byte, visit func(offset, size int, e *raft.Log) error) (first uint64, count uint32, err error) {
	length, err := batchLength(stream)
	if err != nil {
		return 0, 0, err
	}
	if length > len(stream) {
		return 0, 0, errCutOff
	}
	count, first = binary.BigEndian.Uint32(stream[4:]), binary.BigEndian.Uint64(stream[8:])
	at := batchHeader
	for i := range uint64(count) {
		var e raft.Log
		size, err := readEntry(stream[at:length], first+i, &e)
		if err != nil {
			return 0, 0, err
		}
		if err := visit(at, size, &e); err != nil {
			return 0, 0, err
		}
		at += size
	}
	if at != length {
		return 0, 0, errLeftOver
	}
	return first, count, nil
}

// readEntry decodes an entry from the start of a stream and returns its size in bytes.
func readEntry(stream []byte, index uint64, e *raft.Log) (size int, err error) {
	if len(stream) < entryHeader {
		return 0, errCutOff
	}
	size = entryHeader + int(binary.BigEndian.Uint32(stream))
	if size > len(stream) {
		return 0, errCutOff
	}
	*e = raft.Log{
		Index: index,
		Term:  binary.BigEndian.Uint64(stream[4:]),
		Type:  raft.LogType(stream[12]),
		Data:  stream[entryHeader:size:size],
	}
	if appended := int64(binary.BigEndian.Uint64(stream[13:])); appended != 0 {
		e.AppendedAt = time.Unix(0, appended)
	}
	return size, nil
}
