//go:build unix

package transport

import (
	"net"
	"syscall"
)

// writeNow writes as much to a connection as it takes without waiting. Only one goroutine may use it at a
// time.
type writeNow struct {
	raw   syscall.RawConn
	try   func(fd uintptr) bool // method value of once, bound only once
	batch []byte
	n     int
}

// newWriteNow returns nil if conn has no usable descriptor.
func newWriteNow(conn net.Conn) *writeNow {
	raw := descriptor(conn)
	if raw == nil {
		return nil
	}
	w := &writeNow{raw: raw}
	w.try = w.once
	return w
}

// write returns the number of bytes that the connection took. 0 may also mean an error, which the next
// Write of the connection returns.
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
