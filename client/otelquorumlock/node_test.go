package otelquorumlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/server"
)

// TestWithANode locks and unlocks at a real node, and checks the spans and the context of the hold.
func TestWithANode(t *testing.T) {
	cfg := server.Defaults()
	cfg.ID, cfg.DataDir = "n1", t.TempDir()
	cfg.Listen = server.Addresses{Peer: "127.0.0.1:0", Client: "127.0.0.1:0"}
	node, err := server.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	defer func() {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := node.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	o := observe(t)
	c, err := client.New(client.Config{Endpoints: []string{node.Addrs().Client}, Hooks: o.hooks})
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.NewSession(ctx, client.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Do(ctx, "a", func(context.Context, uint64) error { return nil }); err != nil {
		t.Fatal(err)
	}
	held, err := s.Lock(ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil { // loses b
		t.Fatal(err)
	}
	<-held.Context().Done()
	counts := o.counts()
	if counts["quorumlock.acquire.duration"]["ok"] != 2 || counts["quorumlock.hold.duration"]["ok"] != 1 || counts["quorumlock.holds.lost"]["closed"] != 1 {
		t.Errorf("%v", counts)
	}
	if spans := o.spans.Ended(); len(spans) != 4 {
		t.Errorf("%d spans: %v", len(spans), spans)
	}
}
