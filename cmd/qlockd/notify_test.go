package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/test/ports"
)

// TestServiceManager verifies what a node of three, of which two are missing, tells its service manager: that it serves,
// not before it does; signs of life with the reason why it is not ready; and that it stops.
func TestServiceManager(t *testing.T) {
	at := ports.For(t, 5)
	socket, states, unreachable := manage(t, at[0])
	d := start(t, []string{"NOTIFY_SOCKET=" + socket, "WATCHDOG_USEC=100000"}, "--id", "n1", "--data-dir", t.TempDir(),
		"--client-addr", at[0], "--peer-addr", at[1], "--http-addr", at[2], "--cluster", "n1="+at[1]+",n2="+at[3]+",n3="+at[4])
	for _, want := range []string{"READY=1", "WATCHDOG=1\nSTATUS=no leader is known", "WATCHDOG=1\nSTATUS=no leader is known"} {
		if got := next(t, states); got != want {
			t.Fatalf("it sent %q, want %q", got, want)
		}
	}
	if err := <-unreachable; err != nil {
		t.Errorf("READY=1 came before the client port served: %v", err)
	}
	if code := d.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d:\n%s", code, d.text())
	}
	for next(t, states) != "STOPPING=1" {
	}
}

// manage receives notifications as a service manager does. When the process is ready, it connects to the address at once,
// and sends the error.
func manage(t *testing.T, addr string) (socket string, states <-chan string, unreachable <-chan error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify-") // t.TempDir may be too long for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	received, dialled := make(chan string, 1024), make(chan error, 10)
	go func() {
		defer close(received)
		for buffer := make([]byte, 4096); ; {
			n, err := conn.Read(buffer)
			if err != nil {
				return
			}
			if string(buffer[:n]) == "READY=1" {
				client, err := net.Dial("tcp", addr)
				if err == nil {
					_ = client.Close()
				}
				dialled <- err
			}
			received <- string(buffer[:n])
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		for range received { // until the goroutine has ended
		}
		_ = os.RemoveAll(dir)
	})
	return socket, received, dialled
}

// next returns the next notification.
func next(t *testing.T, states <-chan string) string {
	t.Helper()
	select {
	case state := <-states:
		return state
	case <-time.After(testTimeout):
		t.Fatal("no notification came")
		return ""
	}
}

// TestWatchdogNoticesANodeThatHangs verifies that signs of life stop while the node does not answer, and come regularly
// otherwise, until the node stops.
func TestWatchdogNoticesANodeThatHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var sent []string
		hang := make(chan struct{})
		m := serviceManager{watchdog: 10 * time.Second, send: func(state string) { sent = append(sent, state) }}
		asked := 0
		stop := m.serving(func(context.Context) string {
			if asked++; asked > 3 {
				<-hang
			}
			return "ready"
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		alive := "WATCHDOG=1\nSTATUS=ready"
		if want := []string{"READY=1", alive, alive, alive}; !slices.Equal(sent, want) {
			t.Errorf("before and while it hangs: %q, want %q", sent, want)
		}
		close(hang)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(sent); n < 16 || n > 18 {
			t.Errorf("after it has answered again: %d notifications, want one every 5 s", n)
		}
		stop()
		synctest.Wait()
		n := len(sent)
		time.Sleep(time.Minute)
		if len(sent) != n {
			t.Errorf("after its end: %q", sent[n:])
		}
	})
}

// TestWithoutServiceManager verifies that a node that was started by hand says nothing about a service manager, and that
// a wrong environment is reported and stops no node.
func TestWithoutServiceManager(t *testing.T) {
	for env, want := range map[string]string{"": "", "WATCHDOG_USEC=soon": "WATCHDOG_USEC", "NOTIFY_SOCKET=/nowhere/socket": "NOTIFY_SOCKET"} {
		d := start(t, []string{env}, freePorts("--dev")...)
		if code := d.signal(syscall.SIGTERM); code != 0 {
			t.Errorf("%q: exit code %d", env, code)
		}
		if found := strings.Contains(d.text(), "service manager"); found != (want != "") || !strings.Contains(d.text(), want) {
			t.Errorf("%q: the log should mention %q:\n%s", env, want, d.text())
		}
	}
}
