package stable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"testing"

	"github.com/quorumlock/quorumlock/server/storage/segment"
)

// sealed returns the encoding of a record with that body, with a correct checksum.
func sealed(body ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, castagnoli)), body...)
}

func TestMalformedRecords(t *testing.T) {
	for name, data := range map[string][]byte{
		"nothing":                nil,
		"a checksum alone":       sealed(),
		"a wrong checksum":       {1, 2, 3, 4, formatVersion, 1},
		"another format":         sealed(formatVersion+1, 1),
		"no generation":          sealed(formatVersion),
		"an endless generation":  sealed(formatVersion, 0x80, 0x80),
		"a key without a value":  sealed(formatVersion, 1, 1, 'k'),
		"a key beyond the end":   sealed(formatVersion, 1, 2, 'k'),
		"a value beyond the end": sealed(formatVersion, 1, 1, 'k', 2, 'v'),
		"an endless length":      sealed(formatVersion, 1, 0x80),
	} {
		if r, err := decode(data); !errors.Is(err, segment.ErrDamaged) {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}

// FuzzRecord decodes arbitrary bodies. What can be decoded is encoded to a record with the same values.
func FuzzRecord(f *testing.F) {
	r := record{generation: 300, values: map[string][]byte{"": {}, "key": []byte("value")}}
	f.Add(r.encode()[crc32.Size:])
	f.Add([]byte{formatVersion, 1, 1, 'k'})
	f.Fuzz(func(t *testing.T, body []byte) {
		first, err := decode(sealed(body...))
		if err != nil {
			if !errors.Is(err, segment.ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		second, err := decode(first.encode())
		if err != nil || first.generation != second.generation || !maps.EqualFunc(first.values, second.values, bytes.Equal) {
			t.Fatalf("%v, then %v, %v", first, second, err)
		}
	})
}
