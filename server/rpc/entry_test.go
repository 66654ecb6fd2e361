package rpc

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quorumlock/quorumlock/server/internal/command"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// whole is a replica that answers no command until as many as its field entry says have arrived. It then
// answers all of them as commands of one entry.
type whole struct {
	prompt
	entry int

	mu     sync.Mutex // guards the fields below
	queued []func(*wire.Result)
}

func (w *whole) ProposeAll(all []command.Proposal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range all {
		w.queued = append(w.queued, one.Done)
	}
	if len(w.queued) < w.entry {
		return
	}
	for _, done := range w.queued {
		done(&w.answer)
	}
	w.queued = nil
	w.flushed()
}

// counted is a connection that counts the writes to it.
type counted struct {
	repeated
	writes atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return len(p), nil
}

// TestAnswersOfAnEntryShareWrites verifies that a thousand releases in one entry cost one write per
// connection.
func TestAnswersOfAnEntryShareWrites(t *testing.T) {
	const releases, rounds = 1_000, 20
	for _, connections := range []int{1, 10, 1_000} {
		for range rounds {
			if most := mostWrites(t, connections, releases/connections); most != 1 {
				t.Fatalf("%d releases of %d connections in one entry: %d writes to one of them", releases, connections, most)
			}
		}
	}
}

// mostWrites returns the largest number of writes to any of the connections, when every connection has sent
// the given number of releases and all are answered in one entry.
func mostWrites(t *testing.T, connections, each int) (most int) {
	release := &wire.Request{Id: 70_002, SessionId: 1, Seq: 35_002, AckedBelow: 35_002,
		Body: &wire.Request_Release{Release: &wire.Release{HoldId: 5_000_017, Token: 391_484_405_014_593_763}}}
	frame, err := transport.AppendFrame(nil, &wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: release}}, transport.DefaultMaxFrame)
	if err != nil {
		t.Fatal(err)
	}
	answers := &whole{prompt: prompt{answer: wire.Result{Status: wire.Status_OK}}, entry: connections * each}
	srv, err := Serve(Config{Listener: newPipes(), Replica: answers, NodeID: self})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close(context.Background())
	var wires []*counted
	var conns []*conn
	for range connections {
		side := &counted{repeated: repeated{bytes: frame, left: each}}
		l := newLink(side, srv.cfg.Limits)
		c := newConn(srv, l, &greeted{hello: &wire.Hello{Agent: "test"}, caller: known(srv.cfg.Replica), frames: transport.NewFrameReader(l, transport.DefaultMaxFrame)})
		c.attached[1] = struct{}{}
		wires, conns = append(wires, side), append(conns, c)
	}
	for _, c := range conns {
		_ = c.frames.Receive(c) // until everything sent is read
		c.propose()
	}
	for i, c := range conns {
		if err := c.out.Close(nil); err != nil { // writes the rest
			t.Fatal(err)
		}
		most = max(most, int(wires[i].writes.Load()))
	}
	return most
}
