package transport

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"
)

// hint is the buffer for the control message with which Linux reports how much more there is to
// read (TCP_INQ).
type hint [32]byte

// giveHints enables hints on a connection. It reports false if the system does not support them.
func giveHints(raw syscall.RawConn) bool {
	given := false
	_ = raw.Control(func(fd uintptr) { // not called if it fails
		given = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_INQ, 1) == nil
	})
	return given
}

// read reads once. more is false if everything that had arrived was read, and that was not the end
// of the stream.
func (h *hint) read(fd int, p []byte) (n int, more bool, err error) {
	for {
		var told int
		n, told, _, _, err = syscall.Recvmsg(fd, p, h[:], 0)
		if err == syscall.EINTR {
			continue
		}
		data := syscall.CmsgLen(0)
		none := told >= data+4 && binary.NativeEndian.Uint32(h[data:]) == 0
		return n, !none, err
	}
}
