//go:build unix

package transport

import (
	"net"
	"syscall"
)

// writeNow writes to a connection as much as it takes without waiting. One goroutine may
// use it at a time.
type writeNow struct {
	raw   syscall.RawConn
	try   func(fd uintptr) bool // the method once, bound once and for all
	batch []byte
	n     int
}

// newWriteNow returns nil if conn has no descriptor that may be written past it. That a type
// has SyscallConn does not say so: whoever embeds a TCP connection has it, too, whatever
// becomes of what is written, which may be counted, or encrypted.
func newWriteNow(conn net.Conn) *writeNow {
	var raw syscall.RawConn
	var err error
	switch c := conn.(type) {
	case *net.TCPConn:
		raw, err = c.SyscallConn()
	case interface {
		Descriptor() (syscall.RawConn, error)
	}:
		raw, err = c.Descriptor()
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	w := &writeNow{raw: raw}
	w.try = w.once
	return w
}

// write returns how many bytes the connection took. 0 may be an error as well: the next
// Write of the connection will return it.
func (w *writeNow) write(batch []byte) int {
	w.batch, w.n = batch, 0
	_ = w.raw.Write(w.try)
	w.batch = nil
	return w.n
}

func (w *writeNow) once(fd uintptr) bool {
	n, _ := syscall.Write(int(fd), w.batch)
	w.n = max(n, 0)
	return true // never wait
}
