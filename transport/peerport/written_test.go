package peerport_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/peerport"
)

// ownDisk is a leader's own disk, which has written the entries up to some index.
type ownDisk struct {
	mu     sync.Mutex
	upTo   uint64
	failed bool
	moved  chan struct{}
}

func (d *ownDisk) written(index uint64) (bool, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if index > d.upTo && d.failed {
		return false, nil
	}
	return index <= d.upTo, d.moved
}

func (d *ownDisk) move(upTo uint64, failed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.upTo, d.failed = upTo, failed
	close(d.moved)
	d.moved = make(chan struct{})
}

// toAFollower returns the transport of a leader with that disk, and starts a follower that accepts
// everything or nothing.
func toAFollower(t *testing.T, disk *ownDisk, agrees bool) *peerport.Transport {
	m := newMemory()
	from := peerport.NewTransport(start(t, knows("a", "b"), on(m)), peerport.TransportConfig{Written: disk.written})
	to := peerport.NewTransport(start(t, knows("b", "a"), on(m)), peerport.TransportConfig{})
	ended := make(chan struct{})
	t.Cleanup(func() {
		_, _ = from.Close(), to.Close()
		close(ended)
	})
	go func() {
		for {
			select {
			case rpc := <-to.Consumer():
				rpc.Respond(&raft.AppendEntriesResponse{Success: agrees}, nil)
			case <-ended:
				return
			}
		}
	}()
	return from
}

func appendUpTo(index uint64) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{RPCHeader: ofA, Term: 1, PrevLogEntry: index - 1, Entries: []*raft.Log{{Index: index, Term: 1}}}
}

func newOwnDisk() *ownDisk { return &ownDisk{moved: make(chan struct{})} }

// TestFollowersAnswerWaitsForTheLeadersDisk checks calls outside of a pipeline.
func TestFollowersAnswerWaitsForTheLeadersDisk(t *testing.T) {
	for name, test := range map[string]struct {
		end func(*ownDisk, *peerport.Transport)
		ok  bool
	}{
		"it is written":        {func(d *ownDisk, _ *peerport.Transport) { d.move(7, false) }, true},
		"it cannot be written": {func(d *ownDisk, _ *peerport.Transport) { d.move(6, true) }, false},
		"the node closes":      {func(_ *ownDisk, from *peerport.Transport) { _ = from.Close() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				disk := newOwnDisk()
				from := toAFollower(t, disk, true)
				answered := make(chan error, 1)
				go func() { answered <- from.AppendEntries("b", "b", appendUpTo(7), &raft.AppendEntriesResponse{}) }()
				synctest.Wait()
				disk.move(6, false)
				synctest.Wait()
				select {
				case err := <-answered:
					t.Fatalf("raft was told before entry 7 was written: %v", err)
				default:
				}
				test.end(disk, from)
				if err := <-answered; (err == nil) != test.ok {
					t.Error(err)
				}
			})
		})
	}
}

// TestPipelinedAnswerWaitsForTheLeadersDisk checks that later answers wait behind the first one, and that
// those without entries do not count against the limit of unread answers.
func TestPipelinedAnswerWaitsForTheLeadersDisk(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		disk := newOwnDisk()
		from := toAFollower(t, disk, true)
		p, err := from.AppendEntriesPipeline("b", "b")
		if err != nil {
			t.Fatal(err)
		}
		send := func(req *raft.AppendEntriesRequest) {
			t.Helper()
			if _, err := p.AppendEntries(req, &raft.AppendEntriesResponse{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		send(appendUpTo(7))
		send(appendUpTo(8))
		for commit := range uint64(1000) {
			send(&raft.AppendEntriesRequest{RPCHeader: ofA, Term: 1, PrevLogEntry: 8, LeaderCommitIndex: commit})
		}
		for _, index := range []uint64{7, 8} {
			disk.move(index-1, false)
			synctest.Wait()
			select {
			case a := <-p.Consumer():
				t.Fatalf("raft was told of entry %d before %d was written", a.Request().Entries[0].Index, index)
			default:
			}
			disk.move(index, false)
			if a := <-p.Consumer(); len(a.Request().Entries) != 1 || a.Request().Entries[0].Index != index {
				t.Errorf("an answer to %v", a.Request())
			}
		}
		send(&raft.AppendEntriesRequest{RPCHeader: ofA, Term: 1, PrevLogEntry: 8, LeaderCommitIndex: 1000})
		if a := <-p.Consumer(); len(a.Request().Entries) != 0 {
			t.Errorf("an answer to %v", a.Request())
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestRefusalsWaitForNoDisk checks that raft learns immediately that it no longer leads.
func TestRefusalsWaitForNoDisk(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		from := toAFollower(t, newOwnDisk(), false)
		if err := from.AppendEntries("b", "b", appendUpTo(7), &raft.AppendEntriesResponse{}); err != nil {
			t.Error(err)
		}
		p, err := from.AppendEntriesPipeline("b", "b")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.AppendEntries(appendUpTo(7), &raft.AppendEntriesResponse{}); err != nil {
			t.Fatal(err)
		}
		if a := <-p.Consumer(); a.Response().Success {
			t.Error("the follower agreed")
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestStoppedNodeSendsNothing checks that a muted node neither answers nor calls.
func TestStoppedNodeSendsNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		b := start(t, knows("b", "a"), on(m))
		from := peerport.NewTransport(start(t, knows("a", "b"), on(m)), peerport.TransportConfig{})
		to := peerport.NewTransport(b, peerport.TransportConfig{})
		defer func() { _, _ = from.Close(), to.Close() }()
		ask := func() error {
			return from.AppendEntries("b", "b", heartbeat, &raft.AppendEntriesResponse{})
		}
		asked := make(chan struct{}, 10)
		ended := make(chan struct{})
		defer close(ended)
		go func() {
			for {
				select {
				case rpc := <-to.Consumer():
					asked <- struct{}{}
					rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
				case <-ended:
					return
				}
			}
		}()
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		<-asked
		b.StopSending()
		if err := ask(); err == nil {
			t.Error("it answered")
		}
		<-asked
		if err := to.AppendEntries("a", "a", heartbeat, &raft.AppendEntriesResponse{}); err == nil {
			t.Error("it asked")
		}
	})
}
