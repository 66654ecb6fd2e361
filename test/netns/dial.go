//go:build linux

package netns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// dial connects to an IP address and port. Only creating the socket needs a thread in the namespace:
// thousands may connect concurrently, and with a thread each the machine would do nothing else.
func (s space) dial(ctx context.Context, addr string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	var fd int
	if err := s.in(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return err
	}); err != nil {
		return nil, fmt.Errorf("dial %s: make a socket: %w", addr, err)
	}
	socket := os.NewFile(uintptr(fd), addr)
	defer socket.Close()
	if err := connect(ctx, socket, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return net.FileConn(socket)
}

// connect waits until the socket is connected or refused, or ctx ends.
func connect(ctx context.Context, socket *os.File, to unix.Sockaddr) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = socket.SetWriteDeadline(time.Unix(1, 0)) })()
	started := false
	var refused error
	err = raw.Write(func(fd uintptr) (done bool) {
		if !started {
			started, refused = true, unix.Connect(int(fd), to)
			return refused != unix.EINPROGRESS
		}
		done, refused = connected(int(fd))
		return done
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	return refused
}

// connected reports whether the attempt has completed, and its error. That the socket is writable is no
// proof, since that may date from before the connection.
func connected(fd int) (done bool, refused error) {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return true, err
	}
	if code != 0 {
		return true, unix.Errno(code)
	}
	_, err = unix.Getpeername(fd)
	return err != unix.ENOTCONN, nil
}
