package replica

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/membership"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func dropping(id string) *wire.Command {
	return &wire.Command{Op: &wire.Command_DropMember{DropMember: &wire.DropMember{Id: id}}}
}

// TestMembersAreWrittenDown checks records that differ from the state machine in one point each.
func TestMembersAreWrittenDown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, nil)
		n.applies(t, beginnings()[1])
		n.keepDirectory()
		if _, revision, members := n.directory.Record(); revision != 0 || len(members) != 0 {
			t.Errorf("before there is a cluster: revision %d, %v", revision, members)
		}
		n.applies(t, beginnings(someMember("n1"), someMember("n2"))...)
		n.applies(t, membership.Put(someMember("n4")), dropping("n4"))
		var now *wire.Membership
		var revision uint64
		n.View(func(m *fsm.Machine) {
			now, revision = &wire.Membership{ClusterId: m.ClusterID(), Members: m.Members(), Removed: m.Removed()}, m.Revision()
		})
		if len(now.Members) != 2 || len(now.Removed) != 1 {
			t.Fatalf("the machine has %v", now)
		}
		for name, c := range map[string]struct {
			at      uint64
			change  func(*wire.Membership)
			written bool
		}{
			"older, but the same":           {revision - 1, func(*wire.Membership) {}, false},
			"older, of another cluster":     {revision - 1, func(m *wire.Membership) { m.ClusterId = "d" }, true},
			"older, without a member":       {revision - 1, func(m *wire.Membership) { m.Members = m.Members[:1] }, true},
			"older, with one more":          {revision - 1, func(m *wire.Membership) { m.Members = append(m.Members, &wire.Member{Id: "n9"}) }, true},
			"older, with another address":   {revision - 1, func(m *wire.Membership) { m.Members[1].HttpAddr = "old:1" }, true},
			"older, without a removed one":  {revision - 1, func(m *wire.Membership) { m.Removed = nil }, true},
			"as old, but of another":        {revision, func(m *wire.Membership) { m.ClusterId = "d" }, false},
			"newer, but of another cluster": {revision + 1, func(m *wire.Membership) { m.ClusterId = "d" }, false},
		} {
			record := proto.CloneOf(now)
			c.change(record)
			if _, err := n.directory.Store(c.at, record); err != nil {
				t.Fatal(err)
			}
			n.keepDirectory()
			if cluster, got, members := n.directory.Record(); (got == revision && n.directory.Equal(now)) != c.written &&
				(c.written || got != c.at || cluster != record.ClusterId) {
				t.Errorf("%s: cluster %s, revision %d, %v", name, cluster, got, members)
			} else if !c.written && got != c.at {
				t.Errorf("%s: written anew at %d", name, got)
			}
		}
	})
}

// unwritable is a stable store that refuses to write.
type unwritable struct{ raft.StableStore }

func (unwritable) Set([]byte, []byte) error { return errDisk }

// breakDirectory opens the directory again, so that it cannot store anything.
func (n *idle) breakDirectory(t *testing.T) {
	t.Helper()
	cfg := n.directoryConfig()
	cfg.Values = unwritable{cfg.Values}
	d, err := directory.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.directory = d
}

// TestMembersThatAreNotWrittenDown verifies that a failure to store the members stops the node.
func TestMembersThatAreNotWrittenDown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, nil)
		n.applies(t, beginnings(someMember("n1"))...)
		n.breakDirectory(t)
		n.keepDirectory()
		if cause := n.halted.Load(); cause == nil || !errors.Is(*cause, errDisk) || !strings.Contains((*cause).Error(), "keep the members") {
			t.Errorf("the node goes on: %v", cause)
		}
	})
}

// TestSnapshotsAreDueByBytes verifies that a snapshot is requested if the log has grown by the limit.
func TestSnapshotsAreDueByBytes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := serving(t, lone(t, inMemory(), func(err error) { t.Error(err) }))
		for i, limit := range []int64{snapshotBytes, 1} {
			r.keepSmall(r.cluster.Raft(), limit)
			r.snapshots.Wait()
			if list, err := r.stores.Snapshots.List(); err != nil || len(list) != i {
				t.Errorf("with a limit of %d bytes: %d snapshots, %v", limit, len(list), err)
			}
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestSnapshotThatFailsIsLogged verifies that a failed snapshot is logged.
func TestSnapshotThatFailsIsLogged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, nil)
		node := n.runRaft(t) // has nothing to take a snapshot of
		n.keepSmall(node, 0)
		n.snapshots.Wait()
		if got := n.log.lines("cannot take a snapshot"); got != 1 {
			t.Errorf("logged %d times", got)
		}
	})
}

// TestNodeWithoutALeaderAsksTheOthers verifies what a node without a leader does, depending on another node's
// answer.
func TestNodeWithoutALeaderAsksTheOthers(t *testing.T) {
	const lost, refusal = "this node was removed", "the cluster has a leader, but not for this node"
	for name, c := range map[string]struct {
		state   *wire.NodeState
		answer  wire.Status_Code
		halts   bool
		reports int
		logs    string // "" means nothing
	}{
		"replaced":                  {&wire.NodeState{Caller: wire.Standing_REPLACED, LeaderId: "n2", Term: 3}, 0, true, 0, ""},
		"replaced, without leader":  {&wire.NodeState{Caller: wire.Standing_REPLACED, Term: 3}, 0, false, 0, ""},
		"removed":                   {&wire.NodeState{Caller: wire.Standing_REMOVED, LeaderId: "n2", Term: 3}, 0, false, 0, lost},
		"a member":                  {&wire.NodeState{Caller: wire.Standing_MEMBER, LeaderId: "n2", Term: 3}, wire.Status_OK, false, 1, ""},
		"a member that is refused":  {&wire.NodeState{Caller: wire.Standing_MEMBER, LeaderId: "n2", Term: 3}, wire.Status_NOT_FOUND, false, 1, refusal},
		"a member, another leads":   {&wire.NodeState{Caller: wire.Standing_MEMBER, LeaderId: "n3", Term: 3}, wire.Status_OK, false, 0, ""},
		"a member without a leader": {&wire.NodeState{Caller: wire.Standing_MEMBER, Term: 3}, wire.Status_OK, false, 0, ""},
	} {
		bubble.Test(t, func(t *testing.T) {
			n := openIdle(t, nil)
			other := listens(t, n.net, "n2", c.state)
			other.answer = c.answer
			n.runRaft(t)
			n.reportOnce()
			probes, reports := other.asked()
			if halted := n.halted.Load() != nil; halted != c.halts || probes != 1 || reports != c.reports {
				t.Errorf("%s: halted %v, %d probes, %d reports", name, halted, probes, reports)
			}
			for _, text := range []string{lost, refusal} {
				if got := n.log.lines(text); (got == 1) != (text == c.logs) {
					t.Errorf("%s: %q is logged %d times", name, text, got)
				}
			}
			n.halted.CompareAndSwap(nil, &errDisk)
			n.reportOnce()
			if probes, _ := other.asked(); probes != 0 {
				t.Errorf("%s: it asks when it has failed", name)
			}
		})
	}
}

// TestReportsToTheLeader sends reports to a leader that accepts them, refuses them, or does not run.
func TestReportsToTheLeader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, nil)
		n2 := listens(t, n.net, "n2", &wire.NodeState{})
		for status, want := range map[wire.Status_Code]error{wire.Status_OK: nil, wire.Status_NOT_FOUND: status.ErrNotFound, wire.Status_NOT_LEADER: status.ErrNotLeader} {
			n2.mu.Lock()
			n2.answer = status
			n2.mu.Unlock()
			if err := n.reportTo(t.Context(), Peer{ID: "n2", Addr: "n2:7401"}); !errors.Is(err, want) {
				t.Errorf("answered %v: %v", status, err)
			}
		}
		if err := n.reportTo(t.Context(), Peer{ID: "n3", Addr: "n3:7401"}); err == nil {
			t.Error("reported to a node that does not run")
		}
	})
}

// TestAnswersToOtherNodes sends each request that a node answers, and an empty one.
func TestAnswersToOtherNodes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, nil)
		n.runRaft(t)
		if _, err := n.directory.Store(5, someRecord); err != nil {
			t.Fatal(err)
		}
		from := &wire.PeerHello{Id: "n2", Incarnation: "i2"}
		ask := func(req *wire.PeerRequest) *wire.PeerResponse { return n.serveControl(t.Context(), from, req) }
		report := func(id string) *wire.PeerRequest {
			return &wire.PeerRequest{Body: &wire.PeerRequest_Report{Report: &wire.ReportRequest{Member: &wire.Member{Id: id, Incarnation: "i2"}}}}
		}
		campaign := &wire.PeerRequest{Body: &wire.PeerRequest_Campaign{Campaign: &wire.CampaignRequest{Term: 1}}}
		for name, c := range map[string]struct {
			req  *wire.PeerRequest
			want wire.Status_Code
			says string
		}{
			"a probe":                  {&wire.PeerRequest{Body: &wire.PeerRequest_Probe{Probe: &wire.ProbeRequest{}}}, wire.Status_OK, ""},
			"a report":                 {report("n2"), wire.Status_NOT_LEADER, ""},
			"a report of another node": {report("n3"), wire.Status_INVALID_ARGUMENT, "itself only"},
			"a campaign":               {campaign, wire.Status_FAILED_PRECONDITION, "does not follow"},
			"a standing":               {&wire.PeerRequest{Body: &wire.PeerRequest_Standing{Standing: &wire.StandingRequest{Id: "n2", Incarnation: "i2"}}}, wire.Status_OK, ""},
		} {
			resp := ask(c.req)
			if resp.GetStatus() != c.want || !strings.Contains(resp.GetMessage(), c.says) || (resp.GetState() != nil) != (name == "a probe") {
				t.Errorf("%s: %v", name, resp)
			}
			if name == "a standing" && resp.GetStanding() != wire.Standing_MEMBER {
				t.Errorf("%s: %v", name, resp)
			}
		}
		if resp := ask(&wire.PeerRequest{}); resp != nil {
			t.Errorf("nothing: %v", resp)
		}
	})
}

// TestNodeState checks a node's state for each combination of term and log that raft can have,
// and for callers of each standing.
func TestNodeState(t *testing.T) {
	for _, c := range []struct {
		term, last uint64
		empty      bool
	}{{0, 0, true}, {5, 0, false}, {0, 1, false}, {5, 1, false}} {
		bubble.Test(t, func(t *testing.T) {
			n := openIdle(t, nil)
			if c.term > 0 {
				_ = n.stores.Votes.SetUint64([]byte(currentTerm), c.term)
			}
			if c.last > 0 {
				_ = n.stores.Log.StoreLog(&raft.Log{Index: c.last, Term: 1, Type: raft.LogNoop})
			}
			n.runRaft(t)
			if state := n.nodeState(&wire.PeerHello{Id: "n2", Incarnation: "i2"}); state.Empty != c.empty || state.Term != c.term || state.LastIndex != c.last {
				t.Errorf("term %d and entry %d: %v", c.term, c.last, state)
			}
		})
	}
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, func(c *Config) { c.CertificateExpiry = func() time.Time { return time.UnixMilli(4321) } })
		if _, err := n.directory.Store(1, &wire.Membership{
			ClusterId: "c", Members: []*wire.Member{someMember("n1"), someMember("n2")},
			Removed: []*wire.RemovedMember{{Id: "n2", Incarnation: "old", Revision: 3}, {Id: "n5", Incarnation: "gone", Revision: 4}},
		}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			id, incarnation string
			want            wire.Standing
		}{
			{"n2", "i-n2", wire.Standing_MEMBER}, {"n2", "old", wire.Standing_REPLACED}, {"n2", "other", wire.Standing_REPLACED},
			{"n5", "gone", wire.Standing_REMOVED}, {"n7", "i-n7", wire.Standing_UNKNOWN},
		} {
			state := n.nodeState(&wire.PeerHello{Id: c.id, Incarnation: c.incarnation})
			if state.Caller != c.want || !state.Empty || (state.Version != "") != (c.want == wire.Standing_MEMBER) ||
				(state.CertificateExpiresUnixMs == 4321) != (c.want == wire.Standing_MEMBER) {
				t.Errorf("%s with %s is told %v", c.id, c.incarnation, state)
			}
		}
		n.applies(t, beginnings(someMember("n1"), someMember("n2"))...)
		n.applies(t, membership.Put(someMember("n3")))
		from := &wire.PeerHello{Id: "n3", Incarnation: "i-n3"}
		if state := n.nodeState(from); state.Revision == 0 || state.AppliedIndex != n.index || state.Declines {
			t.Errorf("of a machine at entry %d: %v", n.index, state)
		}
		if n.handover.HandedOver("n2", 1, 2); !n.nodeState(from).Declines {
			t.Error("a node that has handed over because of its disk may lead")
		}
	})
}

// recordAs reports m to the leader r in m's own name.
func (r *Replica) recordAs(ctx context.Context, m *wire.Member) error {
	return r.serveReport(ctx, &wire.PeerHello{Id: m.Id, Incarnation: m.Incarnation}, m)
}

// TestReportedAddressesAreRecorded reports nodes to the only node of a cluster. n2 is recorded, n3 is
// configured, and n4 is neither.
func TestReportedAddressesAreRecorded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := serving(t, lone(t, inMemory(), func(err error) { t.Error(err) }))
		if err := r.do(t.Context(), r.current(), membership.Put(someMember("n2")), 0); err != nil {
			t.Fatal(err)
		}
		if err := r.cluster.Raft().AddNonvoter("n3", "n3:7401", 0, 0).Error(); err != nil {
			t.Fatal(err)
		}
		known := func(id string) (m *wire.Member) {
			r.View(func(machine *fsm.Machine) { m, _ = machine.Member(id) })
			return m
		}
		moved := someMember("n2")
		moved.HttpAddr = "moved:1"
		for _, m := range []*wire.Member{moved, someMember("n3")} {
			if err := r.recordAs(t.Context(), m); err != nil || !proto.Equal(known(m.Id), m) {
				t.Errorf("%s is recorded as %v: %v", m.Id, known(m.Id), err)
			}
		}
		applied := r.machine.AppliedIndex()
		if err := r.recordAs(t.Context(), moved); err != nil || r.machine.AppliedIndex() != applied {
			t.Errorf("a report without news: entry %d after %d, %v", r.machine.AppliedIndex(), applied, err)
		}
		if err := r.recordAs(t.Context(), someMember("n4")); !errors.Is(err, status.ErrNotFound) || !strings.Contains(err.Error(), "qlock cluster add n4 n4:7401") || known("n4") != nil {
			t.Errorf("a stranger: %v", err)
		}
		for _, from := range []*wire.PeerHello{{Id: "n3", Incarnation: "i-n2"}, {Id: "n2", Incarnation: "i-n3"}} {
			if err := r.serveReport(t.Context(), from, someMember("n2")); !errors.Is(err, status.ErrInvalid) {
				t.Errorf("n2, by %v: %v", from, err)
			}
			if err := r.serveJoin(t.Context(), from, someMember("n2")); !errors.Is(err, status.ErrInvalid) {
				t.Errorf("n2 joins, by %v: %v", from, err)
			}
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestWhomANodeProbesForOthers verifies that an empty node probes the nodes that a probe names, and that a member does so
// for members only.
func TestWhomANodeProbesForOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, nil)
		ask := func(id string) int {
			req := &wire.PeerRequest{Body: &wire.PeerRequest_Probe{Probe: &wire.ProbeRequest{Reach: []*wire.Member{someMember("gone")}}}}
			return len(n.serveControl(t.Context(), &wire.PeerHello{Id: id, Incarnation: "i-" + id}, req).GetState().GetUnreached())
		}
		if got := ask("n9"); got != 1 {
			t.Errorf("an empty node reported %d", got)
		}
		if _, err := n.directory.Store(1, &wire.Membership{ClusterId: "c", Members: []*wire.Member{n.self(), someMember("n2")}}); err != nil {
			t.Fatal(err)
		}
		if member, stranger := ask("n2"), ask("n9"); member != 1 || stranger != 0 {
			t.Errorf("a member reported %d to a member, and %d to a stranger", member, stranger)
		}
	})
}

// TestReportsWaitForChanges verifies that a report waits for another change of the members, and that the
// members after that change count.
func TestReportsWaitForChanges(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := serving(t, lone(t, inMemory(), func(err error) { t.Error(err) }))
		put := func(id string) {
			t.Helper()
			if err := r.do(t.Context(), r.current(), membership.Put(someMember(id)), 0); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			meanwhile func()
			want      error
		}{
			{func() { time.Sleep(2 * probe.Timeout) }, status.ErrUnavailable},
			{func() {
				if err := r.do(t.Context(), r.current(), dropping("n2"), 0); err != nil {
					t.Error(err)
				}
			}, status.ErrNotFound},
			{func() { r.endLeadership("of the test") }, status.ErrNotLeader},
		} {
			put("n3")
			id := "n3"
			if errors.Is(c.want, status.ErrNotFound) {
				put("n2")
				id = "n2"
			}
			changed := r.changeMembers(t)
			said := make(chan error, 1)
			go func() {
				moved := someMember(id)
				moved.HttpAddr = c.want.Error()
				said <- r.recordAs(t.Context(), moved)
			}()
			synctest.Wait()
			c.meanwhile()
			synctest.Wait()
			changed()
			if err := <-said; !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		}
		if err := r.recordAs(t.Context(), someMember("n3")); !errors.Is(err, status.ErrNotLeader) {
			t.Errorf("reported to a node that does not lead: %v", err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestRecordedNodesDoNotReport verifies that a node stops reporting to the leader once it is recorded.
func TestRecordedNodesDoNotReport(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, nodes := openTogether(t, 2)
		time.Sleep(5 * reporting)
		calls := nodes[0].layer.Stats().Accepted
		time.Sleep(5 * reporting)
		if now := nodes[0].layer.Stats().Accepted; now-calls > 2 { // two may exchange state hashes
			t.Errorf("the leader took %d calls", now-calls)
		}
	})
}
