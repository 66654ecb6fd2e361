package rpc

import (
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// together sends several requests and then garbage in one write. It returns the ID of the first request.
func (p *peer) together(garbage string, requests ...*wire.Request) (first uint64) {
	p.t.Helper()
	first = p.nextID + 1
	var all []byte
	for _, req := range requests {
		p.nextID++
		req.Id = p.nextID
		var err error
		if all, err = transport.AppendFrame(all, &wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: req}}, transport.DefaultMaxFrame); err != nil {
			p.t.Fatal(err)
		}
	}
	if _, err := p.conn.Write(append(all, garbage...)); err != nil {
		p.t.Fatal(err)
	}
	return first
}

func TestMoreRequestsInOneWriteThanMayBeUnderWay(t *testing.T) {
	for _, window := range []int{1, 3, 1000} {
		p := serve(t, func(c *Config) { c.Limits.MaxInFlight = window })
		c := connect(t, p)
		session := c.open(secret)
		var requests []*wire.Request
		for i := range uint64(2*maxEnlisted + 1) {
			requests = append(requests, acquire(session, i+1, fmt.Sprint("orders/", i), true))
		}
		first := c.together("", requests...)
		for i := range requests {
			if got := c.await(first + uint64(i)).GetResult(); got.GetStatus() != wire.Status_GRANTED {
				t.Fatalf("%d at once: request %d: %v", window, i, got)
			}
		}
	}
}

func TestRequestsInOneWriteAreExecutedInOrder(t *testing.T) {
	p := serve(t, nil)
	c := connect(t, p)
	session := c.open(secret)
	closing := &wire.Request{SessionId: session, Body: &wire.Request_CloseSession{CloseSession: &wire.CloseSession{}}}
	first := c.together("", acquire(session, 1, "orders/1", true), closing, acquire(session, 2, "orders/2", true))
	for i, want := range []wire.Status_Code{wire.Status_GRANTED, wire.Status_OK, wire.Status_SESSION_LOST} {
		got := c.await(first + uint64(i)).GetResult().GetStatus()
		if got != want && (i < 2 || got != wire.Status_NOT_ATTACHED) {
			t.Errorf("request %d: %v, want %v", i, got, want)
		}
	}
}

func TestRequestsBeforeGarbageAreExecuted(t *testing.T) {
	p := serve(t, nil)
	rude, other := connect(t, p), connect(t, p)
	session, late := rude.open(secret), other.open([]byte("the-other-secret"))
	rude.together("\x00\x00\x00\x01\xff", acquire(session, 1, "orders/1", true))
	for { // the answer may arrive before the goodbye
		var frame wire.ServerFrame
		if err := rude.r.Read(&frame); err != nil {
			t.Fatal(err)
		}
		if bye := frame.GetGoodbye(); bye != nil {
			if bye.Code != wire.Goodbye_PROTOCOL_ERROR {
				t.Errorf("goodbye %v", bye)
			}
			break
		}
	}
	other.expect(wire.Status_QUEUED, acquire(late, 1, "orders/1", true))
}
