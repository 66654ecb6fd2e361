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

// newWriteNow returns nil if conn has no descriptor.
func newWriteNow(conn net.Conn) *writeNow {
	raw := descriptor(conn)
	if raw == nil {
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
