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
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/membership"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestAdministrators verifies the answer to an administrative request in each state of a node.
func TestAdministrators(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Replica)
		want   error
	}{
		"serving":         {func(*Replica) {}, nil},
		"not serving yet": {func(r *Replica) { r.leadership.serving = false }, status.ErrNotLeader},
		"following":       {func(r *Replica) { r.leadership = nil }, status.ErrNotLeader},
		"stopping":        {func(r *Replica) { r.closing = true }, status.ErrUnavailable},
		"failed":          {func(r *Replica) { r.halted.Store(&errDisk) }, status.ErrUnavailable},
	} {
		r := &Replica{leadership: &leadership{term: 7, serving: true}}
		c.change(r)
		lead, done, err := r.administer()
		if !errors.Is(err, c.want) || (lead == nil) != (c.want != nil) {
			t.Errorf("%s: %v, %v", name, lead, err)
		}
		if err == nil {
			done()
		}
		r.admins.Wait()
	}
}

// onCommand replaces raft for entries that contain a wanted command: they are passed to instead. It must be
// called in a bubble.
func (r *Replica) onCommand(wanted func(*wire.Command) bool, instead func(data []byte) raft.ApplyFuture) {
	synctest.Wait() // until the proposer is idle
	apply := func(data []byte, timeout time.Duration) raft.ApplyFuture {
		var entry wire.Entry
		if err := proto.Unmarshal(data, &entry); err == nil {
			for _, cmd := range entry.Commands {
				if wanted(cmd) {
					return instead(data)
				}
			}
		}
		return r.apply(data, timeout)
	}
	r.applyEntry.Store(&apply)
}

// changeMembers keeps a change of the members in progress until done is called.
func (r *Replica) changeMembers(t *testing.T) (done func()) {
	t.Helper()
	done, err := r.members.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func refuseEntry([]byte) raft.ApplyFuture { return groupcommit.Failed{Err: raft.ErrNotLeader} }

// isAct, isPut and isDrop recognize the commands of a membership change.
func isAct(cmd *wire.Command) bool  { return cmd.GetRecordAct() != nil }
func isPut(cmd *wire.Command) bool  { return cmd.GetPutMember() != nil }
func isDrop(cmd *wire.Command) bool { return cmd.GetDropMember() != nil }
func isNone(*wire.Command) bool     { return false }

// memberIDs returns the ids of the recorded and of the configured members.
func (r *Replica) memberIDs() (recorded, configured string) {
	r.View(func(m *fsm.Machine) {
		for _, member := range m.Members() {
			recorded += member.Id
		}
	})
	for _, id := range []string{"n1", "n2", "n3", "n9"} {
		if r.cluster.Contains(id) {
			configured += id
		}
	}
	return recorded, configured
}

// TestAdditionsThatFail verifies that an addition stops at the step that fails.
func TestAdditionsThatFail(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		net, nodes := openTogether(t, 1)
		r := nodes[0]
		listens(t, net, "n2", &wire.NodeState{Empty: true})
		add := func(when, id string, want error, says, members string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err := r.AddMember(ctx, &wire.AddMemberRequest{Id: id, PeerAddr: id + ":7401", Reason: "test"})
			recorded, configured := r.memberIDs()
			if !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), says) || recorded+" "+configured != members {
				t.Errorf("%s: recorded %s, configured %s, %v", when, recorded, configured, err)
			}
		}
		changed := r.changeMembers(t)
		add("another change is under way", "n2", status.ErrUnavailable, "another membership change", "n1 n1")
		changed()
		r.onCommand(isAct, refuseEntry)
		add("the act is not recorded", "n2", status.ErrNotLeader, "", "n1 n1")
		r.onCommand(isPut, refuseEntry)
		add("the member is not recorded", "n2", status.ErrNotLeader, "", "n1 n1")
		r.onCommand(isNone, nil)
		if err := r.cluster.Raft().AddNonvoter("n9", "n2:7401", 0, 0).Error(); err != nil {
			t.Fatal(err)
		}
		add("another one has the address", "n2", status.ErrPrecondition, "duplicate", "n1n2 n1n9")
		if err := r.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: "n9", Reason: "test"}); err != nil {
			t.Errorf("removed one that is configured only: %v", err)
		}
		add("nobody answers", "n5", status.ErrPrecondition, "does not answer", "n1n2 n1")
		add("at last", "n2", nil, "", "n1n2 n1n2")
		add("again", "n2", nil, "", "n1n2 n1n2")
		add("itself", "n1", nil, "", "n1n2 n1n2")
		for _, req := range []*wire.AddMemberRequest{{Id: "n2", PeerAddr: "n2:7401"}, {Id: "n2", PeerAddr: "nowhere", Reason: "test"}} {
			if err := r.AddMember(t.Context(), req); !errors.Is(err, status.ErrInvalid) {
				t.Errorf("%v: %v", req, err)
			}
		}
	})
}

// TestRemovalsThatFail verifies that a removal stops at the step that fails.
func TestRemovalsThatFail(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		net, nodes := openTogether(t, 1)
		r := nodes[0]
		listens(t, net, "n2", &wire.NodeState{Empty: true})
		if err := r.AddMember(t.Context(), &wire.AddMemberRequest{Id: "n2", PeerAddr: "n2:7401", Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		remove := func(when, id string, want error, members string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err := r.RemoveMember(ctx, &wire.RemoveMemberRequest{Id: id, Reason: "test"})
			recorded, configured := r.memberIDs()
			if !errors.Is(err, want) || recorded+" "+configured != members {
				t.Errorf("%s: recorded %s, configured %s, %v", when, recorded, configured, err)
			}
		}
		remove("without an id", "", status.ErrInvalid, "n1n2 n1n2")
		remove("one that is not there", "n5", status.ErrNotFound, "n1n2 n1n2")
		remove("the last voter", "n1", status.ErrPrecondition, "n1n2 n1n2")
		if err := r.StepDown(t.Context()); !errors.Is(err, status.ErrPrecondition) || !r.Serving() {
			t.Errorf("the last voter stepped down: %v", err)
		}
		changed := r.changeMembers(t)
		remove("another change is under way", "n2", status.ErrUnavailable, "n1n2 n1n2")
		changed()
		r.onCommand(isAct, refuseEntry)
		remove("the act is not recorded", "n2", status.ErrNotLeader, "n1n2 n1n2")
		r.onCommand(isDrop, refuseEntry)
		remove("the member is not dropped", "n2", status.ErrNotLeader, "n1n2 n1")
		r.onCommand(isNone, nil)
		remove("at last", "n2", nil, "n1 n1")
		if err := r.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: "n2"}); !errors.Is(err, status.ErrInvalid) {
			t.Errorf("without a reason: %v", err)
		}
	})
}

// TestRemovalByAFormerLeader verifies a removal during which another node becomes the leader, once the act is
// recorded.
func TestRemovalByAFormerLeader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, nodes := openTogether(t, 3)
		r, other := nodes[0], nodes[1].cfg.ID
		r.onCommand(isAct, func(data []byte) raft.ApplyFuture {
			future := r.apply(data, time.Minute)
			if err := errors.Join(future.Error(), r.cluster.Raft().LeadershipTransfer().Error()); err != nil {
				t.Error(err)
			}
			return future
		})
		err := r.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: other, Reason: "test"})
		if !errors.Is(err, status.ErrNotLeader) || !r.cluster.Contains(other) {
			t.Errorf("removed: %v", err)
		}
	})
}

// TestRemovalBesideASilentVoter verifies that no voter is asked before a node is removed that is recorded but
// not configured.
func TestRemovalBesideASilentVoter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		net, nodes := openTogether(t, 3)
		r, silent := nodes[0], nodes[2].cfg.ID
		if err := r.do(t.Context(), r.current(), membership.Put(someMember("n9")), 0); err != nil {
			t.Fatal(err)
		}
		net.Isolate(silent, r.cfg.ID, nodes[1].cfg.ID)
		begin := time.Now()
		err := r.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: "n9", Reason: "test"})
		if took := time.Since(begin); err != nil || took > probe.Timeout/2 {
			t.Errorf("it took %v: %v", took, err)
		}
		err = r.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: nodes[1].cfg.ID, Reason: "test"})
		if !errors.Is(err, status.ErrPrecondition) || !strings.Contains(err.Error(), "only 1 answer") {
			t.Errorf("removed one of the two that answer: %v", err)
		}
		net.Heal()
	})
}

// TestLeadershipThatIsNotHandedOver verifies that leadership stays if the transfer fails.
func TestLeadershipThatIsNotHandedOver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		net, nodes := openTogether(t, 3)
		r, other := nodes[0], nodes[1]
		own, others := r.cfg.ID, other.cfg.ID
		reject := func() {
			net.Reject(own, others)
			net.Reject(own, nodes[2].cfg.ID)
		}
		transfer := func(to string) error {
			return r.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Id: to, Reason: "test"})
		}
		leave := func() error {
			return r.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: own, Reason: "test"})
		}
		stepDown := func() error { return r.StepDown(t.Context()) }
		then := func(cut func()) func(data []byte) raft.ApplyFuture {
			return func(data []byte) raft.ApplyFuture {
				future := r.apply(data, time.Minute)
				_ = future.Error()
				cut()
				return future
			}
		}
		for _, c := range []struct {
			name    string
			prepare func()
			do      func() error
			want    error
			says    string
		}{
			{"by a follower", func() {}, func() error { return other.StepDown(t.Context()) }, status.ErrNotLeader, ""},
			{"to nobody", func() {}, func() error { return transfer("n9") }, status.ErrNotFound, "n9"},
			{"to itself", func() {}, func() error { return transfer(own) }, nil, ""},
			{"without a record", func() { r.onCommand(isAct, refuseEntry) }, func() error { return transfer(others) }, status.ErrNotLeader, ""},
			{"without a record, removed", func() { r.onCommand(isAct, refuseEntry) }, leave, status.ErrNotLeader, ""},
			{"to a node that does not answer", func() { net.Reject(own, others) }, func() error { return transfer(others) }, status.ErrPrecondition, "does not answer"},
			{"nobody answers", reject, func() error { return transfer("") }, status.ErrPrecondition, "no other voter answers"},
			{"nobody answers, stopping", reject, stepDown, status.ErrPrecondition, "no other voter answers"},
			{"nobody answers, removed", reject, leave, status.ErrPrecondition, "no other voter answers"},
			{"it goes while it is asked", func() { r.onCommand(isAct, then(func() { net.Reject(own, others) })) }, func() error { return transfer(others) }, status.ErrUnavailable, "not handed over"},
			{"they go while they are asked, removed", func() { r.onCommand(isAct, then(reject)) }, leave, status.ErrUnavailable, "not handed over"},
		} {
			c.prepare()
			err := c.do()
			if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.says) || err != nil && strings.Contains(err.Error(), "any more") {
				t.Errorf("%s: %v", c.name, err)
			}
			net.Heal()
			if !r.Serving() && c.name != "they go while they are asked, removed" {
				t.Fatalf("%s: it leads no more", c.name)
			}
			r.onCommand(isNone, nil)
			time.Sleep(time.Second)
		}
		if err := r.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Id: others}); !errors.Is(err, status.ErrInvalid) {
			t.Errorf("without a reason: %v", err)
		}
	})
}

// blocked is the future of an entry that is in flight until the channel is closed.
type blocked struct {
	groupcommit.Failed
	until chan struct{}
}

func (b blocked) Error() error {
	<-b.until
	return b.Failed.Err
}

// TestStepDownWaitsForEntries verifies that StepDown waits for the entries in flight, and that it returns an
// error if leadership stays.
func TestStepDownWaitsForEntries(t *testing.T) {
	for name, stays := range map[string]bool{"handed over": false, "nobody to take it": true} {
		bubble.Test(t, func(t *testing.T) {
			net, nodes := openTogether(t, 2)
			r, other := nodes[0], nodes[1]
			finished, answered, left := make(chan struct{}), make(chan *wire.Result, 1), make(chan error, 1)
			r.onCommand(isPut, func([]byte) raft.ApplyFuture { return blocked{groupcommit.Failed{Err: raft.ErrNotLeader}, finished} })
			r.Proposer.ProposeUrgent(r.current().term, groupcommit.NewItem(membership.Put(someMember("n9")), func(result *wire.Result) { answered <- result }))
			synctest.Wait()
			go func() { left <- r.StepDown(t.Context()) }()
			synctest.Wait()
			if len(left) > 0 || !r.Serving() {
				t.Errorf("%s: before the entry in flight", name)
			}
			if stays {
				net.Reject(r.cfg.ID, other.cfg.ID)
			}
			close(finished)
			if err := <-left; (err == nil) == stays || stays && !errors.Is(err, status.ErrUnavailable) || r.Serving() && !stays {
				t.Errorf("%s: serving %v, %v", name, r.Serving(), err)
			}
			<-answered
			net.Heal()
		})
	}
}
