package redis

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// deadline bounds each condition that a test waits for.
const deadline = 10 * time.Second

// port is a Redis port on loopback in front of a fake.
type port struct {
	*Server
	service *fake
}

// serve starts a port. change may change its configuration.
func serve(t testing.TB, change func(*Config)) *port {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := newFake(t)
	cfg := Config{Listener: listener, Service: f, Source: f, NodeID: "n1", ClusterID: func() string { return "c" }, Version: "v1"}
	if change != nil {
		change(&cfg)
	}
	s, err := Serve(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return &port{s, f}
}

// peer is a client that speaks the protocol.
type peer struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func dial(t testing.TB, p *port) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(deadline))
	return &peer{t, conn, bufio.NewReader(conn)}
}

// encoded returns a command as clients send it.
func encoded(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

func (p *peer) send(raw string) {
	p.t.Helper()
	if _, err := io.WriteString(p, raw); err != nil {
		p.t.Fatal(err)
	}
}

// do sends a command and returns its reply as it came. Words are separated by spaces.
func (p *peer) do(words string) string { return p.call(strings.Split(words, " ")...) }

func (p *peer) call(args ...string) string {
	p.t.Helper()
	p.send(encoded(args...))
	return p.reply()
}

func (p *peer) reply() string {
	p.t.Helper()
	reply, err := readReply(p.r)
	if err != nil {
		p.t.Fatalf("no reply: %v", err)
	}
	return reply
}

// readReply returns one reply as it came.
func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return line, err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	switch line[0] {
	case '$':
		if n < 0 {
			return line, nil
		}
		body := make([]byte, n+2)
		_, err := io.ReadFull(r, body)
		return line + string(body), err
	case '%':
		n *= 2
	case '*', '~':
	default:
		return line, nil
	}
	for range n {
		element, err := readReply(r)
		if err != nil {
			return line, err
		}
		line += element
	}
	return line, nil
}

// ended waits until the port has closed the connection, and returns what came before.
func (p *peer) ended() string {
	p.t.Helper()
	rest, err := io.ReadAll(p.r)
	if err, ok := err.(net.Error); ok && err.Timeout() {
		p.t.Fatal("the connection stays open")
	}
	return string(rest)
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	end := time.NewTimer(deadline)
	defer end.Stop()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for !holds() {
		select {
		case <-poll.C:
		case <-end.C:
			t.Fatal("timed out waiting for: " + what)
		}
	}
}
