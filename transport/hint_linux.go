package transport

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"
)

// hint is room for what Linux tells with what is read: how much more there is (TCP_INQ).
type hint [32]byte

// giveHints has the system tell hints on a connection; false if it cannot.
func giveHints(raw syscall.RawConn) bool {
	given := false
	_ = raw.Control(func(fd uintptr) { // not called if it fails
		given = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_INQ, 1) == nil
	})
	return given
}

// read reads once. more is false if all was read that was there, and if that was not the
// end of the stream.
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
