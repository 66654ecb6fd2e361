package tunnel

import (
	"encoding/binary"

	"github.com/quorumlock/quorumlock/transport"
)

// boundary tracks a stream of frames to find out where a frame ends.
type boundary struct {
	header [transport.HeaderSize]byte
	have   int // bytes of the current header passed on so far
	rest   int // bytes of the current message not passed on yet
}

// record notes bytes that were passed on.
func (b *boundary) record(p []byte) {
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

// next returns how many bytes certainly belong to the current frame, or 0 between frames.
func (b *boundary) next() int {
	if b.have > 0 {
		return len(b.header) - b.have
	}
	return b.rest
}
