package transport

import (
	"net"
	"syscall"
)

// descriptor returns that of conn, or nil if it has none that may be read and written past
// conn. That a type has SyscallConn does not say so: whoever embeds a TCP connection has it,
// too, whatever becomes of what is written, which may be counted, or encrypted.
func descriptor(conn any) syscall.RawConn {
	var raw syscall.RawConn
	var err error
	switch c := conn.(type) {
	case *net.TCPConn:
		raw, err = c.SyscallConn()
	case interface {
		Descriptor() (syscall.RawConn, error)
	}:
		raw, err = c.Descriptor()
	}
	if err != nil {
		return nil
	}
	return raw
}
