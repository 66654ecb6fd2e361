//go:build linux

package transport

import (
	"net"
	"syscall"
	"testing"
)

// TestHints checks that a read reports whether there is more, which saves the second read.
func TestHints(t *testing.T) {
	l, err := TCP{}.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs, err := TCP{}.Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	ours, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	raw := descriptor(ours)
	if raw == nil || !giveHints(raw) {
		t.Fatal("Linux gives hints")
	}
	read := func(room int, wantN int, wantMore bool) {
		t.Helper()
		var h hint
		err := raw.Read(func(fd uintptr) bool {
			n, more, err := h.read(int(fd), make([]byte, room))
			if err == syscall.EAGAIN {
				return false
			}
			if n != wantN || more != wantMore || err != nil {
				t.Errorf("%d bytes, more %t, %v; want %d and %t", n, more, err, wantN, wantMore)
			}
			return true
		})
		if err != nil {
			t.Error(err)
		}
	}
	say := func(n int) {
		if _, err := theirs.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	say(10)
	read(100, 10, false)
	say(10)
	read(6, 6, true)
	read(4, 4, false)
	say(10)
	if err := theirs.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	read(100, 10, true)
	read(100, 0, true)
}
