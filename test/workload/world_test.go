package workload

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/test/judge"
	"github.com/quorumlock/quorumlock/test/simnet"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// world is a single-node cluster in virtual time, and a load that uses it.
type world struct {
	t    *testing.T
	net  *simnet.Net
	log  *history.Log
	disk *raft.InmemStore
	web  *http.Client
	run  *Run
}

// ttl is short, since failing checks are retried for twice as long.
const ttl = time.Second

// inWorld starts a load and calls story with it. Anything left running shows up as a deadlock.
func inWorld(t *testing.T, opts Options, story func(w *world)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		w := &world{t: t, net: simnet.New(1), log: history.New(nil), disk: raft.NewInmemStore()}
		w.net.Weather(simnet.Weather{Delay: time.Millisecond})
		node, err := server.Open(t.Context(), server.Config{
			ID: "n1", Listen: server.Addresses{Peer: "n1:7401", Client: "n1:7400", HTTP: "n1:7402"}, Insecure: true,
			Network: w.net.Host("n1"), Settings: &wire.Settings{MinTtlMs: uint32(ttl.Milliseconds())},
			Stores: storage.Backend{Log: w.disk, Stable: w.disk, Snapshots: raft.NewInmemSnapshotStore(), Incarnation: "n1-1"},
		})
		if err != nil {
			t.Fatal(err)
		}
		for !node.Replica().Serving() {
			w.pass(10 * time.Millisecond)
		}
		w.web = &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return w.net.Host("curl").Dial(ctx, addr) },
		}}
		opts.TTL, opts.FrailTTL, opts.Pace = ttl, ttl, 100*time.Millisecond
		w.run = Start(Env{Client: w.client, HTTP: w.web, Bases: []string{"http://n1:7402"}, Log: w.log, Seed: 7}, opts)
		story(w)
		w.run.Abandon()
		w.web.CloseIdleConnections()
		if err := node.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func (w *world) client(name string) *client.Client {
	c, err := client.New(client.Config{
		Endpoints: []string{"n1:7400"}, Agent: name, Clock: client.RuntimeClock(), Dial: w.log.Tap(name, w.net.Host(name).Dial),
	})
	if err != nil {
		panic(err) // no endpoints, or invalid ones
	}
	return c
}

// stranger opens a session that the load does not know.
func (w *world) stranger(name string) *client.Session {
	w.t.Helper()
	c := w.client("stranger")
	w.t.Cleanup(func() { _ = c.Close() })
	s, err := c.NewSession(w.t.Context(), client.SessionOptions{TTL: time.Minute, Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// locks acquires a lock for a stranger, waiting if necessary.
func (w *world) locks(s *client.Session, name string) *client.Hold {
	w.t.Helper()
	h, err := s.Lock(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// faults returns the faults that the load found.
func (w *world) faults() (all []string) {
	for _, f := range w.log.History().Faults() {
		all = append(all, f.Text)
	}
	return all
}

// entries returns the node's log.
func (w *world) entries() (all []judge.Entry) {
	w.t.Helper()
	last, err := w.disk.LastIndex()
	for i := uint64(1); i <= last && err == nil; i++ {
		l := &raft.Log{}
		if err = w.disk.GetLog(i, l); l.Type == raft.LogCommand {
			all = append(all, judge.Entry{Index: l.Index, Term: l.Term, Data: l.Data})
		}
	}
	w.must(err)
	return all
}

// finds fails the test unless there is a fault with those words.
func (w *world) finds(words string) {
	w.t.Helper()
	if all := w.faults(); !strings.Contains(fmt.Sprint(all), words) {
		w.t.Errorf("found %q, and nothing with %q", all, words)
	}
}

// waits lets a stranger wait for a lock in the background.
func (w *world) waits(s *client.Session, name string) {
	go func() { _, _ = s.Lock(context.Background(), name) }()
	synctest.Wait()
}

// pass lets virtual time pass.
func (w *world) pass(d time.Duration) { time.Sleep(d) }
