package hostile

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// attack is one connection that misbehaves.
type attack struct {
	name string
	port port
	// raw is set if it sends TCP, whatever the port's protocol.
	raw bool
	// h2 is set if it uses HTTP/2.
	h2 bool
	// greeted is set if it sends a valid hello first.
	greeted bool
	send    []byte
	// fin is set if it closes its sending half afterwards. Otherwise it waits.
	fin bool
	// within is how long the node may take to close the connection.
	within time.Duration
	// log is what the log line about it must contain. It is empty for a caller that hung up in the middle of
	// valid input, which a node may ignore.
	log []string
}

const (
	// tries is how often an attack is repeated until its log line is found: under many errors, as in these
	// tests, logs are sampled.
	tries = 4
	// sampleTime is how long to wait for a log line that may have been left out.
	sampleTime = 2 * time.Second
)

// logTime is how long a log line may take to arrive.
var logTime = aloneOrShared(2*time.Second, 20*time.Second)

// run makes the attack and checks its effects.
func (a attack) run(t *testing.T, c *cluster) {
	t.Helper()
	for i := range tries {
		local, took := a.once(t, c)
		within := sampleTime
		if i == tries-1 {
			within = logTime
		}
		if a.log == nil || loggedWithin(t, within, c.leader, append(a.log, local)...) {
			t.Logf("closed after %v", took.Round(time.Millisecond))
			return
		}
	}
	t.Errorf("after %d attacks no line of the log says %q", tries, a.log)
}

// once returns the address that the node saw, and how long it took to close the connection.
func (a attack) once(t *testing.T, c *cluster) (local string, took time.Duration) {
	t.Helper()
	config := c.insider(a.port)
	switch {
	case a.raw:
		config = nil
	case a.h2 && config != nil:
		config.NextProtos = []string{"h2"}
	}
	conn := dial(t, c.leader.addr[a.port], config)
	defer transport.Cut(conn)
	if a.greeted {
		greet(t, c, conn, a.port)
	}
	started := time.Now()
	_ = conn.SetDeadline(started.Add(a.within + slack))
	_, err := conn.Write(a.send) // the connection may be closed before everything is written
	if half, ok := conn.(interface{ CloseWrite() error }); ok && a.fin && err == nil {
		_ = half.CloseWrite()
	}
	if n, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("not closed within %v, %d bytes came", a.within+slack, n)
	}
	return conn.LocalAddr().String(), time.Since(started)
}

// logged waits for a log line with all of the texts.
func logged(t testing.TB, n *node, texts ...string) bool {
	t.Helper()
	return loggedWithin(t, logTime, n, texts...)
}

func loggedWithin(t testing.TB, within time.Duration, n *node, texts ...string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if len(n.log.find(texts...)) > 0 {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// greet sends a valid hello.
func greet(t testing.TB, c *cluster, conn net.Conn, p port) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	switch p {
	case clientPort:
		if _, _, err := transport.ClientHandshake(ctx, conn, &wire.Hello{Agent: "hostile"}); err != nil {
			t.Fatal(err)
		}
	case peerPort:
		_ = conn.SetDeadline(time.Now().Add(timeout))
		if err := transport.NewFrameWriter(conn, 1<<20).WriteFirst(c.peerHello(wire.PeerHello_CONTROL)); err != nil {
			t.Fatal(err)
		}
		var reply wire.PeerHelloReply
		if err := transport.NewFrameReader(conn, 1<<20).Read(&reply); err != nil || reply.GetStatus() != wire.Status_OK {
			t.Fatalf("the hello between nodes: %v, %v", &reply, err)
		}
		_ = conn.SetDeadline(time.Time{})
	}
}

// peerHello returns the hello of a node that may connect: n9, not known yet.
func (c *cluster) peerHello(purpose wire.PeerHello_Purpose) *wire.PeerHello {
	hello := &wire.PeerHello{Version: 1, Purpose: purpose, Id: "n9", Incarnation: "made up", TargetId: c.leader.id}
	if c.certs != "" {
		hello.ClusterId = clusterName
	}
	return hello
}

// first returns the preface and a frame with this body.
func first(body []byte) []byte { return append([]byte(transport.Preface), frame(body)...) }

func frame(body []byte) []byte { return append(length(len(body)), body...) }

// length returns a frame's header.
func length(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

// torn returns the beginning of a frame whose header claims more bytes than follow.
func torn(claimed, come int) []byte { return append(length(claimed), make([]byte, come)...) }

func prefaced(b []byte) []byte { return append([]byte(transport.Preface), b...) }

func encoded(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("a test's own message: %v", err))
	}
	return b
}

func request(r *wire.Request) []byte {
	return encoded(&wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: r}})
}

// repeat returns n bytes of one value.
func repeat(b byte, n int) []byte {
	all := make([]byte, n)
	for i := range all {
		all[i] = b
	}
	return all
}

// noise returns n pseudo-random bytes, always the same.
func noise(n int) []byte {
	var all []byte
	for block := sha256.Sum256([]byte("noise")); len(all) < n; block = sha256.Sum256(block[:]) {
		all = append(all, block[:]...)
	}
	return all[:n]
}
