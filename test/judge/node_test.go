package judge_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/test/judge"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// node runs a node on a directory, calls use with a client on tapped connections, and stops the node.
func node(t *testing.T, dir string, tune func(*server.Config), log *history.Log, use func(ctx context.Context, c *client.Client)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cfg := server.Defaults()
	cfg.ID, cfg.DataDir = "n1", dir
	cfg.Listen = server.Addresses{Peer: "127.0.0.1:0", Client: "127.0.0.1:0"}
	if tune != nil {
		tune(&cfg)
	}
	n, err := server.Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Endpoints: []string{n.Addrs().Client}, Dial: log.Tap("c", nil)})
	if err != nil {
		t.Fatal(err)
	}
	use(ctx, c)
	if err := errors.Join(c.Close(), n.Close(ctx)); err != nil {
		t.Error(err)
	}
}

// contend lets sessions lock and unlock one lock in turn, and read it.
func contend(t *testing.T, log *history.Log, rounds int) func(ctx context.Context, c *client.Client) {
	return func(ctx context.Context, c *client.Client) {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if err := takeTurns(ctx, log, c, rounds); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}

func takeTurns(ctx context.Context, log *history.Log, c *client.Client, rounds int) error {
	s, err := c.NewSession(ctx, client.SessionOptions{Name: "turns"})
	if err != nil {
		return err
	}
	for i := range rounds {
		asked := log.Now()
		h, err := s.Lock(ctx, "turns")
		if err != nil {
			return err
		}
		held := log.Grant(history.Hold{
			Client: "c", Session: s.ID(), ID: h.ID(), Token: h.Token(), Revision: h.Revision(),
			Locks: history.Exclusive("turns"), Asked: asked,
		})
		held.Follow(h.Context())
		if i%5 == 0 {
			if _, err := wirecall.Of(c).GetLock(ctx, &wire.GetLockRequest{Name: "turns"}); err != nil {
				return err
			}
		}
		held.End()
		if err := h.Unlock(ctx); err != nil {
			return err
		}
		held.Acknowledge()
	}
	return s.Close(ctx)
}

var bounds = judge.Bounds{Stamps: true, Commit: 10 * time.Second, Slack: time.Second, Answer: 20 * time.Second}

// TestRealNode checks a run of a real node by the log in its directory, which is only read.
func TestRealNode(t *testing.T) {
	dir, log := t.TempDir(), history.New(nil)
	node(t, dir, nil, log, contend(t, log, 20))
	before := stamp(t, dir)
	entries, snapshot, err := judge.ReadLogs(dir)
	if err != nil || snapshot != nil {
		t.Fatalf("%v; a snapshot of %d bytes", err, len(snapshot))
	}
	if after := stamp(t, dir); after != before {
		t.Errorf("reading changed %s to %s", before, after)
	}
	v := judge.Run(judge.Input{History: log.History(), Entries: entries, Bounds: bounds})
	if err := errors.Join(v.Err(), v.Counts.Enough(judge.Counts{Grants: 80, Contended: 10, Holds: 80, Reads: 16})); err != nil {
		t.Error(err)
	}
	t.Log(v.Counts)
}

// stamp returns a fingerprint of a directory that changes when it is written to.
func stamp(t *testing.T, dir string) string {
	t.Helper()
	text := ""
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text += fmt.Sprintln(path, info.Size(), info.ModTime())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}
