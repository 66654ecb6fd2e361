package replica

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/internal/retired"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/test/simnet"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// lone returns the configuration of the only node of a cluster, on an in-memory network.
func lone(t *testing.T, stores storage.Backend, halt func(error)) Config {
	t.Helper()
	host := simnet.New(1).Host("n1")
	listener, err := host.Listen(t.Context(), "n1:7401")
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		ID: "n1", Advertise: Addresses{Peer: "n1:7401"}, Cluster: []Peer{{ID: "n1", Addr: "n1:7401"}},
		Network: host, PeerListener: listener, Stores: stores, Halt: halt,
	}
}

func inMemory() storage.Backend {
	return storage.Backend{Log: raft.NewInmemStore(), Stable: raft.NewInmemStore(), Snapshots: raft.NewInmemSnapshotStore(), Incarnation: "i1"}
}

// TestCommittedEntriesAreNotCut deletes entries as raft does when a leader has others. Committed ones are
// kept, and the node stops for good.
func TestCommittedEntriesAreNotCut(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		stores, halted := inMemory(), make(chan error, 1)
		r, err := Open(t.Context(), lone(t, stores, func(err error) { halted <- err }))
		if err != nil {
			t.Fatal(err)
		}
		awaitRaft(t, "the node serves", r.Serving)
		log, last := r.stores.Log, r.cluster.Raft().LastIndex()
		uncommitted := &raft.Log{Index: last + 1, Term: 1, Type: raft.LogNoop}
		if err := errors.Join(stores.Log.StoreLog(uncommitted), log.DeleteRange(last+1, last+1)); err != nil {
			t.Errorf("an entry that is not committed was kept: %v", err)
		}
		if err := log.DeleteRange(last, last); !errors.Is(err, status.ErrForked) {
			t.Errorf("a committed entry was deleted: %v", err)
		}
		if err := <-halted; !errors.Is(err, status.ErrForked) || !strings.Contains(err.Error(), "cluster remove n1") {
			t.Errorf("the node stops with %v", err)
		}
		if now, _ := stores.Log.LastIndex(); now != last {
			t.Errorf("the log ends at %d, not %d", now, last)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := Open(t.Context(), lone(t, stores, nil)); !errors.Is(err, status.ErrForked) {
			t.Errorf("opened again: %v", err)
		}
	})
}

// TestCompactionDeletesCommittedEntries verifies that entries covered by a snapshot can be deleted.
func TestCompactionDeletesCommittedEntries(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r, err := Open(t.Context(), lone(t, inMemory(), func(err error) { t.Error(err) }))
		if err != nil {
			t.Fatal(err)
		}
		awaitRaft(t, "the node serves", r.Serving)
		if err := r.cluster.Raft().Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		last := r.cluster.Raft().LastIndex()
		if err := r.stores.Log.DeleteRange(1, last); err != nil {
			t.Errorf("entries that are in a snapshot were kept: %v", err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// dialling is a network that counts dials.
type dialling struct {
	transport.Network
	dials atomic.Int64
}

func (d *dialling) Dial(ctx context.Context, addr string) (net.Conn, error) {
	d.dials.Add(1)
	return d.Network.Dial(ctx, addr)
}

// TestForkThatShowsLater meets a node whose term began at a revision that this one has not applied yet. Once
// it has applied that revision, without that term, the two meet again.
func TestForkThatShowsLater(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cfg := lone(t, inMemory(), func(err error) { t.Error(err) })
		network := &dialling{Network: cfg.Network}
		cfg.Network = network
		r := serving(t, cfg)
		s := r.peers
		theirs := s.Position()
		theirs.Revision++
		theirs.TermStarts = append(theirs.TermStarts, &wire.TermStart{Term: 1_000, Revision: theirs.Revision})
		met := func(want string) {
			t.Helper()
			if got := s.Incarnation("n2"); got != want {
				t.Errorf("met n2 as %q, want %q", got, want)
			}
		}
		if err := s.CheckState("n2", "i2", &wire.PeerState{Position: theirs}); err != nil {
			t.Fatal(err)
		}
		met("i2")
		if _, err := r.directory.Store(1_000, &wire.Membership{Members: []*wire.Member{{Id: "n1"}, {Id: "n2", PeerAddr: "n2:7401"}}}); err != nil {
			t.Fatal(err)
		}
		before := network.dials.Load()
		s.Applied(&wire.TermStart{Term: 1_000_000}) // a new term, and nothing else
		time.Sleep(time.Second)
		if n := network.dials.Load() - before; n != 0 {
			t.Errorf("asked %d nodes", n)
		}
		met("i2")
		r.openSession(t, "a")
		time.Sleep(time.Second)
		if network.dials.Load() == before {
			t.Error("asked nobody")
		}
		met("")
		if err := s.CheckState("n2", "i2", &wire.PeerState{Position: theirs}); !errors.Is(err, status.ErrForked) {
			t.Errorf("met again: %v", err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestFirstReasonToStopIsKept verifies that a node that stops for good stores why, and no later reason.
func TestFirstReasonToStopIsKept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, nil)
		n.rolledBack("n2", "it lacks a vote")
		n.forked("the others have another log")
		if cause := n.halted.Load(); cause == nil || !errors.Is(*cause, status.ErrRolledBack) || !strings.Contains((*cause).Error(), "it lacks a vote") {
			t.Errorf("halted with %v", cause)
		}
		if err := retired.Check(n.stores.Values); !errors.Is(err, status.ErrRolledBack) {
			t.Errorf("the next start fails with %v", err)
		}
		if text, _ := n.stores.Values.Get([]byte("quorumlock.forked")); len(text) > 0 {
			t.Errorf("stored as well: %s", text)
		}
	})
}
