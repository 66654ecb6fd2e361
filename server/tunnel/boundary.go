package tunnel

import (
	"encoding/binary"

	"github.com/quorumlock/quorumlock/transport"
)

// boundary follows a stream of frames, to know where one ends.
type boundary struct {
	header [transport.HeaderSize]byte
	have   int // bytes of the header that have passed
	rest   int // bytes of the message that have not
}

// pass is told of bytes that have passed.
func (b *boundary) pass(p []byte) {
	for len(p) > 0 {
		if b.rest == 0 {
			n := copy(b.header[b.have:], p)
			b.have += n
			p = p[n:]
			if b.have == len(b.header) {
				b.have, b.rest = 0, int(binary.BigEndian.Uint32(b.header[:]))
			}
			continue
		}
		n := min(b.rest, len(p))
		b.rest -= n
		p = p[n:]
	}
}

// next is how many bytes belong to the frame that has begun, for certain; 0 between frames.
func (b *boundary) next() int {
	if b.have > 0 {
		return len(b.header) - b.have
	}
	return b.rest
}
