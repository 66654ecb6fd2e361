package rpc

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/quorumlock/quorumlock/server/internal/fairqueue"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestFloodOfReadsCostsItsOwnConnection verifies that a flood of reads is refused what exceeds its own line,
// and delays neither operators nor the reads of another connection.
func TestFloodOfReadsCostsItsOwnConnection(t *testing.T) {
	queues := fairqueue.NewQueues()
	defer queues.Close()
	p := serve(t, func(c *Config) { c.Queues = queues })
	flood, honest := connect(t, p), connect(t, p)
	free := make(chan struct{})
	release := sync.OnceFunc(func() { close(free) })
	defer release()
	for i := range 8 { // as many as the maximum of workers
		if err := queues.Reads.Submit(identity.Sender{Identity: fmt.Sprint(i)}, func(context.Context) { <-free }, nil); err != nil {
			t.Fatal(err)
		}
	}
	list := func() *wire.Request {
		return &wire.Request{Body: &wire.Request_ListLocks{ListLocks: &wire.ListLocksRequest{Stale: true}}}
	}
	var ids []uint64
	for range 100 {
		ids = append(ids, flood.send(list()))
	}
	flood.open(secret) // queued after all of them
	id := honest.send(list())
	honest.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_Status{Status: &wire.StatusRequest{}}})
	honest.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_AddMember{AddMember: &wire.AddMemberRequest{Id: "n2", PeerAddr: "h:1", Reason: "test"}}})
	release()
	if resp := honest.await(id); resp.GetResult().GetStatus() != wire.Status_OK {
		t.Errorf("an honest read beside a flood: %v", resp)
	}
	refused := 0
	for _, id := range ids {
		if flood.await(id).GetResult().GetStatus() == wire.Status_RESOURCE_EXHAUSTED {
			refused++
		}
	}
	if refused != 36 {
		t.Errorf("%d of 100 reads of the flood were refused, its line holds 64", refused)
	}
}
