package command

import (
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestCommandsOfOneReadAreQueuedOrAnsweredOneByOne(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := openDeadlines(t, wire.Status_UNAVAILABLE)
		r := &Processor{Deadlines: d, cfg: Config{Machine: fsm.NewReplicated(1, nil)}}
		r.Proposer = groupcommit.New(nil, func() *wire.Result { return status.Result(wire.Status_NOT_LEADER, "") })
		d.Observe(opened(1, time.Second))
		d.Observe(opened(2, 2*time.Second))
		d.Observe(opened(3, 10*time.Millisecond))
		time.Sleep(300 * time.Millisecond) // the end of the third session is decided

		var answers []wire.Status_Code
		var answered []uint64
		var ends [5]time.Time
		propose := func() {
			answers, answered, ends = nil, nil, [5]time.Time{}
			var all []Proposal
			for i, session := range []uint64{1, 3, 2, 4, 1} {
				all = append(all, Proposal{
					Command: &wire.Command{SessionId: session},
					Until:   &ends[i],
					Done: func(result *wire.Result) {
						answers, answered = append(answers, result.Status), append(answered, session)
					},
				})
			}
			all[4].Size = groupcommit.MaxEntryBytes
			r.ProposeAll(all)
		}
		propose()
		if want := []wire.Status_Code{wire.Status_NOT_LEADER, wire.Status_SESSION_LOST, wire.Status_NOT_LEADER, wire.Status_NOT_LEADER, wire.Status_RESOURCE_EXHAUSTED}; !slices.Equal(answers, want) {
			t.Errorf("without a leadership: %v, want %v", answers, want)
		}
		r.Proposer.Begin(7)
		r.Proposer.Serve(7, 1)
		propose()
		if want := []wire.Status_Code{wire.Status_SESSION_LOST, wire.Status_RESOURCE_EXHAUSTED}; !slices.Equal(answers, want) {
			t.Errorf("answered %v at once, want %v", answers, want)
		}
		answered = nil
		r.Proposer.End(status.Result(wire.Status_NOT_LEADER, ""))
		if want := []uint64{1, 2, 4}; !slices.Equal(answered, want) {
			t.Errorf("queued for %v, want %v", answered, want)
		}
		now := time.Now()
		if want := [5]time.Time{now.Add(time.Second), {}, now.Add(2 * time.Second), {}, now.Add(time.Second)}; ends != want {
			t.Errorf("ends at %v, want %v", ends, want)
		}
	})
}

// TestAttachIsNoSignOfLife verifies that an attach does not prolong its session and is not refused with it,
// and that an unknown session has no end.
func TestAttachIsNoSignOfLife(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := openDeadlines(t, wire.Status_UNAVAILABLE)
		d.Observe(opened(1, time.Second))
		d.Observe(opened(2, 10*time.Millisecond))
		time.Sleep(300 * time.Millisecond) // the end of the second session is decided
		var ends [3]time.Time
		attach := &wire.Command_AttachSession{AttachSession: &wire.AttachSession{}}
		all := []Proposal{
			{Command: &wire.Command{SessionId: 2, Op: attach}, Until: &ends[0]},
			{Command: &wire.Command{SessionId: 1, Op: attach}},
			{Command: &wire.Command{SessionId: 9}, Until: &ends[1]},
			{Command: &wire.Command{}, Until: &ends[2]},
		}
		r := &Processor{Deadlines: d}
		if n := r.touchAll(all, time.Now()); n != len(all) || ends != [3]time.Time{} {
			t.Errorf("%d are counted, until %v", n, ends)
		}
		if age, _ := d.Age(1); age != 300*time.Millisecond {
			t.Errorf("the session was alive %v ago", age)
		}
		d.SetExhausted(1, true)
		d.SetExhausted(9, true)
		one := []Proposal{{Command: &wire.Command{SessionId: 1}}}
		if r.touchAll(one, time.Now()); !one[0].Exhausted {
			t.Error("the session was not refused anything")
		}
	})
}

// TestSessionsThatWereRefused verifies that a session that was refused something is checked until it has
// room.
func TestSessionsThatWereRefused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := newLeading(t)
		session := n.openNow(t, "a")
		exhausted := func() bool {
			one := []Proposal{{Command: &wire.Command{SessionId: session}}}
			n.touchAll(one, time.Now())
			return one[0].Exhausted
		}
		acquire := acquireOf(session, 1)
		p := Proposal{Command: acquire, Growth: fsm.GrowthUnits(acquire), Exhausted: true}
		n.Deadlines.SetExhausted(session, true)
		if no := n.exhausted(&p, 1<<40); no.GetStatus() != wire.Status_RESOURCE_EXHAUSTED || !exhausted() {
			t.Errorf("beyond the budget: %v, exhausted %v", no, exhausted())
		}
		if no := n.exhausted(&Proposal{Command: &wire.Command{SessionId: session}, Exhausted: true}, 0); no != nil || !exhausted() {
			t.Errorf("a command that takes no room: %v, exhausted %v", no, exhausted())
		}
		if no := n.exhausted(&p, 0); no != nil || exhausted() {
			t.Errorf("within the budget: %v, exhausted %v", no, exhausted())
		}
		p.Exhausted = false
		if no := n.exhausted(&p, 1<<40); no.GetStatus() != wire.Status_RESOURCE_EXHAUSTED {
			t.Errorf("beyond the budget, and nothing was refused before: %v", no)
		}
	})
}

// TestQuotasAtTheDoor verifies that requests of an identity that was refused something by a quota are refused before
// they are logged, that retries and requests that give something up are not, and that others are not affected.
func TestQuotasAtTheDoor(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := newLeading(t)
		dan := opening("a")
		dan.Caller = &wire.Caller{Identity: "dan"}
		session := n.applyNow(t, dan).Results[0].GetSession().GetSessionId()
		n.applyNow(t, &wire.Command{Caller: &wire.Caller{Identity: "root"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Reason: "r", Policy: &wire.Policy{
			Bindings: []*wire.Binding{{Identity: "root", Roles: []string{"admin"}}, {Identity: "*", Roles: []string{"user"}}},
			Quotas:   []*wire.Quota{{Identity: "ann", Sessions: 1}, {Identity: "*", Claims: 1}},
		}}}})
		open := func(name string) Proposal {
			cmd := opening(name)
			cmd.Caller = &wire.Caller{Identity: "ann"}
			return Proposal{Command: cmd, Identity: "ann", Size: 100}
		}
		n.applyNow(t, open("b").Command)
		acquire := func(seq uint64, name string) *wire.Command {
			return &wire.Command{SessionId: session, Seq: seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: name}}}}}
		}
		n.applyNow(t, acquire(1, "a"))
		refusals := func(all ...Proposal) (refused []string) {
			for _, r := range n.faults(all) {
				refused = append(refused, r.GetMessage())
			}
			return refused
		}
		if got := refusals(open("c")); got != nil {
			t.Errorf("before anything was refused: %q", got)
		}
		n.noteFull("ann")
		if got := refusals(open("c"), open("b")); len(got) != 2 || got[0] != `quota sessions of "ann": 1 of 1 used, this would take 1 more` || got[1] != "" {
			t.Errorf("another session, and the same again: %q", got)
		}
		n.noteFull("dan")
		of := func(cmd *wire.Command) Proposal { return Proposal{Command: cmd, Identity: "dan", Size: 100} }
		release := &wire.Command{SessionId: session, Seq: 3, Op: &wire.Command_Release{Release: &wire.Release{HoldId: 1, Token: 1}}}
		got := refusals(of(acquire(2, "b")), of(acquire(1, "a")), of(release))
		if want := `quota claims of "dan": 1 of 1 used, this would take 1 more`; len(got) != 3 || got[0] != want || got[1]+got[2] != "" {
			t.Errorf("another claim, the same again and a release: %q", got)
		}
		if !n.full.has("ann") || !n.full.has("dan") || n.full.has("ben") {
			t.Error("the identities that were refused something are not known")
		}
		n.applyNow(t, &wire.Command{Caller: &wire.Caller{Identity: "root"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Reason: "r", ExpectedRevision: revisionOfPolicy(n)}}})
		if got := refusals(open("c")); got != nil || n.full.has("ann") {
			t.Errorf("without a policy: %q", got)
		}
	})
}

// TestQueueOfOthersCostsNoShare verifies that what is queued counts towards the state of a cluster without a policy, and
// that with one it does not cost another identity its share.
func TestQueueOfOthersCostsNoShare(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := newLeading(t)
		ask := func() *wire.Result {
			cmd := opening("a")
			cmd.Caller = &wire.Caller{Identity: "ann"}
			return n.exhausted(&Proposal{Command: cmd, Identity: "ann", Growth: fsm.GrowthUnits(cmd), Size: 100}, 1<<40)
		}
		if got := ask(); got.GetStatus() != wire.Status_RESOURCE_EXHAUSTED {
			t.Errorf("without a policy: %v", got)
		}
		n.applyNow(t, &wire.Command{Caller: &wire.Caller{Identity: "root"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Reason: "r", Policy: &wire.Policy{
			Bindings: []*wire.Binding{{Identity: "root", Roles: []string{"admin"}}, {Identity: "*", Roles: []string{"user"}}},
		}}}})
		if got := ask(); got != nil {
			t.Errorf("with one: %v", got)
		}
		if n.noteFull("ann"); !n.full.has("ann") {
			t.Error("what was refused to an identity is forgotten")
		}
	})
}

func revisionOfPolicy(n *leading) uint64 {
	_, revision := n.cfg.Machine.Access().Policy()
	return revision
}
