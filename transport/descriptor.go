package transport

import (
	"net"
	"syscall"
)

// descriptor returns the file descriptor of conn, or nil if conn has none that may be read and written
// directly. Having a SyscallConn method is not enough: every type that embeds a TCP connection has one,
// whatever it does with what is written, such as counting or encrypting it.
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
