package netns_test

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/netns"
)

const (
	waitTimeout = 10 * time.Second
	// brief is how long to wait for what must not happen.
	brief = 300 * time.Millisecond
	port  = "7000"
)

// pair creates two hosts. A listener on b echoes every byte.
func pair(t *testing.T) *netns.Net {
	t.Helper()
	if err := netns.Unable(); err != nil {
		t.Skip(err)
	}
	n, err := netns.New("a", "b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	l, err := n.Listen("b", n.Addr("b")+":"+port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go echo(l)
	return n
}

func echo(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn) // ends with the connection
		}()
	}
}

func dial(t *testing.T, n *netns.Net, within time.Duration) (net.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	conn, err := n.Dialer("a")(ctx, n.Addr("b")+":"+port)
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

// answered sends a byte and waits for the echo.
func answered(conn net.Conn, within time.Duration) error {
	_ = conn.SetDeadline(time.Now().Add(within))
	if _, err := conn.Write([]byte{1}); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	return err
}

func mustDial(t *testing.T, n *netns.Net) net.Conn {
	t.Helper()
	conn, err := dial(t, n, waitTimeout)
	if err == nil {
		err = answered(conn, waitTimeout)
	}
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// force returns a fault that is healed when the test ends, at the latest.
func force(t *testing.T) func(*netns.Fault, error) *netns.Fault {
	return func(f *netns.Fault, err error) *netns.Fault {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
}

// met fails the test unless the fault has affected packets, and heals it.
func met(t *testing.T, f interface {
	Packets() (uint64, error)
	Heal() error
}) {
	t.Helper()
	if count, err := f.Packets(); err != nil || count == 0 {
		t.Errorf("it met %d packets: %v", count, err)
	}
	if err := f.Heal(); err != nil {
		t.Error(err)
	}
}

func TestPartOfTheNet(t *testing.T) {
	n := pair(t)
	open := mustDial(t, n)
	f, err := n.Part([]string{"a"}, []string{"b"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t, n, brief); err == nil {
		t.Error("a connects to b")
	}
	if err := answered(open, brief); err == nil {
		t.Error("b answers a")
	}
	met(t, f)
	if _, err := f.Packets(); err != nil {
		t.Errorf("after healing: %v", err)
	}
	mustDial(t, n)
	// What was sent in the meantime arrives, since TCP retransmits it.
	_ = open.SetDeadline(time.Now().Add(waitTimeout))
	if _, err := open.Read(make([]byte, 1)); err != nil {
		t.Error("after healing: ", err)
	}
}

// sent sends datagrams from one host to another and returns how many arrive.
func sent(t *testing.T, n *netns.Net, from, to string, count int) (arrived int) {
	t.Helper()
	var in net.PacketConn
	var out net.Conn
	err := errors.Join(
		n.In(to, func() (err error) { in, err = net.ListenPacket("udp", n.Addr(to)+":0"); return err }),
		n.In(from, func() (err error) { out, err = net.Dial("udp", in.LocalAddr().String()); return err }))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	for range count {
		if _, err := out.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	_ = in.SetDeadline(time.Now().Add(brief))
	for {
		if _, _, err := in.ReadFrom(make([]byte, 1)); err != nil {
			return arrived
		}
		arrived++
	}
}

func TestCutOneWay(t *testing.T) {
	n := pair(t)
	mustDial(t, n)
	f := force(t)(n.Cut([]string{"a"}, []string{"b"}))
	if arrived := sent(t, n, "a", "b", 10); arrived != 0 {
		t.Errorf("%d arrived from a at b", arrived)
	}
	if arrived := sent(t, n, "b", "a", 10); arrived != 10 {
		t.Errorf("%d of 10 arrived from b at a", arrived)
	}
	met(t, f)
	if arrived := sent(t, n, "a", "b", 10); arrived != 10 {
		t.Errorf("%d of 10 arrived after healing", arrived)
	}
}

func TestLose(t *testing.T) {
	n := pair(t)
	mustDial(t, n) // the switch takes a moment to learn a new host
	f := force(t)(n.Lose(30, "b"))
	if arrived := sent(t, n, "a", "b", 200); arrived < 100 || arrived > 180 {
		t.Errorf("%d of 200 arrived with a loss of 30 %%", arrived)
	}
	met(t, f)
}

func TestReject(t *testing.T) {
	n := pair(t)
	open := mustDial(t, n)
	f := force(t)(n.Reject([]int{7000}, "b"))
	if _, err := dial(t, n, waitTimeout); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: %v", err)
	}
	if err := answered(open, waitTimeout); err != nil {
		t.Errorf("an open connection: %v", err)
	}
	met(t, f)
	mustDial(t, n)
}

func TestReset(t *testing.T) {
	n := pair(t)
	open := mustDial(t, n)
	f := force(t)(n.Reset([]int{7000}, "b"))
	if err := answered(open, waitTimeout); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("an open connection: %v", err)
	}
	met(t, f)
	mustDial(t, n)
}

func TestNothingOutside(t *testing.T) {
	before, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	n := pair(t)
	mustDial(t, n)
	after, err := net.Interfaces()
	if err != nil || len(after) != len(before) {
		t.Errorf("%d interfaces before, %d with a network: %v", len(before), len(after), err)
	}
}
