package stable

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/quorumlock/quorumlock/server/storage/segment"
)

// formatVersion is the version of the record's encoding, its first byte.
const formatVersion = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is everything that the store holds.
type record struct {
	// generation counts the writes. It is 0 if nothing was ever written.
	generation uint64
	values     map[string][]byte
}

// next returns a copy of the record with the next generation. The values themselves are shared.
func (r record) next() record {
	next := record{generation: r.generation + 1, values: maps.Clone(r.values)}
	if next.values == nil {
		next.values = map[string][]byte{}
	}
	return next
}

// encode returns the record's encoding: version, generation, then key and value of each entry by key, each
// preceded by its length. A CRC-32C of all of this comes first.
func (r record) encode() []byte {
	data := append(make([]byte, crc32.Size), formatVersion)
	data = binary.AppendUvarint(data, r.generation)
	for _, key := range slices.Sorted(maps.Keys(r.values)) {
		data = appendBytes(data, []byte(key))
		data = appendBytes(data, r.values[key])
	}
	binary.BigEndian.PutUint32(data, crc32.Checksum(data[crc32.Size:], castagnoli))
	return data
}

func appendBytes(data, b []byte) []byte {
	return append(binary.AppendUvarint(data, uint64(len(b))), b...)
}

// decode returns the record with that encoding. It returns segment.ErrDamaged if there is none.
func decode(data []byte) (record, error) {
	if len(data) <= crc32.Size || crc32.Checksum(data[crc32.Size:], castagnoli) != binary.BigEndian.Uint32(data) {
		return record{}, fmt.Errorf("%w: the checksum of term and vote is wrong", segment.ErrDamaged)
	}
	body := data[crc32.Size:]
	if body[0] != formatVersion {
		return record{}, fmt.Errorf("%w: term and vote have format %d, and this program knows format %d", segment.ErrDamaged, body[0], formatVersion)
	}
	generation, n := binary.Uvarint(body[1:])
	if n <= 0 {
		return record{}, cutOff()
	}
	r := record{generation: generation, values: map[string][]byte{}}
	for body = body[1+n:]; len(body) > 0; {
		var key, value []byte
		var err error
		if key, body, err = takeBytes(body); err != nil {
			return record{}, err
		}
		if value, body, err = takeBytes(body); err != nil {
			return record{}, err
		}
		r.values[string(key)] = slices.Clone(value)
	}
	return r, nil
}

// takeBytes returns the first byte string of data, and the rest.
func takeBytes(data []byte) (first, rest []byte, err error) {
	size, n := binary.Uvarint(data)
	if n <= 0 || size > uint64(len(data)-n) {
		return nil, nil, cutOff()
	}
	return data[n : n+int(size)], data[n+int(size):], nil
}

func cutOff() error {
	return fmt.Errorf("%w: the record of term and vote is incomplete", segment.ErrDamaged)
}
