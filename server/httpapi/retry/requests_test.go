package retry

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/internal/pending"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// node is a state machine whose commands are those that the requests propose.
type node struct {
	t        *testing.T
	m        *fsm.Machine
	proposed []*wire.Command
	// answer replaces the results of proposals unless it is nil.
	answer *wire.Result
	log    bytes.Buffer
}

func newNode(t *testing.T) (*node, *Requests) {
	t.Helper()
	n := &node{t: t, m: fsm.New(fsm.Level)}
	n.apply(&wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c", Settings: fsm.DefaultSettings()}}})
	return n, New(n, n.propose, hclog.New(&hclog.LoggerOptions{Output: &n.log}))
}

func (n *node) View(f func(*fsm.Machine)) { f(n.m) }

func (n *node) propose(ctx context.Context, cmd *wire.Command) *wire.Result {
	if _, bounded := ctx.Deadline(); !bounded {
		n.t.Errorf("a proposal without a bound: %v", cmd)
	}
	n.proposed = append(n.proposed, cmd)
	if n.answer != nil {
		return n.answer
	}
	return n.apply(cmd)
}

func (n *node) apply(cmd *wire.Command) *wire.Result {
	n.t.Helper()
	data, err := wire.AppendEntry(nil, &wire.Entry{Level: 1, Commands: []*wire.Command{cmd}})
	if err != nil {
		n.t.Fatal(err)
	}
	applied, err := n.m.Apply(data)
	if err != nil {
		n.t.Fatal(err)
	}
	return applied.Results[0]
}

func (n *node) open(secret byte) uint64 {
	n.t.Helper()
	return n.apply(&wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: bytes.Repeat([]byte{secret}, 32)}}}).GetSession().GetSessionId()
}

// acquire sends a request of a session and returns its result and what identifies it.
func (n *node) acquire(session, seq uint64, name string, wait bool) (*wire.Result, pending.Key) {
	n.t.Helper()
	cmd := &wire.Command{SessionId: session, Seq: seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
		Locks: []*wire.LockRequest{{Name: name, Mode: wire.Mode_SHARED}}, WaitForever: wait,
	}}}
	if wait {
		cmd.GetAcquire().Locks[0].Mode = wire.Mode_EXCLUSIVE
	}
	return n.apply(cmd), pending.Key{Session: session, Seq: seq, Digest: cmd.Digest()}
}

func TestSeqsOfCallers(t *testing.T) {
	for _, c := range []struct {
		seq, below uint64
		want       string
	}{
		{1, 0, ""}, {1<<62 - 1, 1<<62 - 1, ""}, {0, 1, "seq is missing"}, {1 << 62, 0, "below 2^62"}, {1, 1 << 62, "below 2^62"},
	} {
		err := CheckSeq(c.seq, c.below)
		if (err == nil) != (c.want == "") || err != nil && (apierror.Status(err) != wire.Status_INVALID_ARGUMENT || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%d, %d: %v", c.seq, c.below, err)
		}
	}
}

// TestFinalSeqs verifies that the outcomes below a mark are found across gaps of limited length, and no waits.
func TestFinalSeqs(t *testing.T) {
	n, r := newNode(t)
	ann, bob := n.open(1), n.open(2)
	for _, seq := range []uint64{1, 3, 3 + GapEnds, 5 + 2*GapEnds} {
		n.acquire(ann, seq, fmt.Sprint("l", seq), false)
	}
	for below, want := range map[uint64]string{
		0: "[]", 1: "[]", 2: "[1]", 4: "[3 1]", 4 + GapEnds: fmt.Sprint([]int{3 + GapEnds, 3, 1}), 6 + 2*GapEnds: fmt.Sprint([]int{5 + 2*GapEnds}),
	} {
		if got := fmt.Sprint(r.Final(ann, below)); got != want {
			t.Errorf("below %d: %s, want %s", below, got, want)
		}
	}
	n.acquire(bob, 1, "l1", true)
	if got := r.Final(bob, 2); got != nil {
		t.Errorf("a request that waits is final: %v", got)
	}
}

// TestGrantsAreFound verifies which holds a session has, and which requests were granted.
func TestGrantsAreFound(t *testing.T) {
	n, r := newNode(t)
	ann, bob := n.open(1), n.open(2)
	granted, key := n.acquire(ann, 1, "a", false)
	_, waits := n.acquire(bob, 1, "a", true)
	if !r.Granted(key) || r.Granted(waits) || r.Granted(pending.Key{Session: ann, Seq: 1, Digest: 1}) || r.Granted(pending.Key{Session: ann, Seq: 2}) {
		t.Error("another request was granted")
	}
	if held := r.Held(ann, granted.GetHoldId()); held.GetToken() != granted.GetToken() {
		t.Errorf("held: %v", held)
	}
	if r.Held(bob, granted.GetHoldId()) != nil || r.Held(ann, granted.GetHoldId()+1) != nil {
		t.Error("a hold of somebody else is found")
	}
}

// TestAbandonedRequestsAreUndone verifies what is proposed for a request without callers.
func TestAbandonedRequestsAreUndone(t *testing.T) {
	n, r := newNode(t)
	ann, bob := n.open(1), n.open(2)
	_, held := n.acquire(ann, 1, "a", false)
	_, waits := n.acquire(bob, 1, "a", true)
	expect := func(what string, key pending.Key, want ...string) {
		t.Helper()
		n.proposed = nil
		r.Cancel(key)
		var got []string
		for _, cmd := range n.proposed {
			got = append(got, fmt.Sprintf("%d.%d %T", cmd.SessionId, cmd.Seq, cmd.Op))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	cancel := func(session, seq uint64) string {
		return fmt.Sprintf("%d.%d %T", session, cancelSeq|seq, &wire.Command_Cancel{})
	}
	expect("a wait", waits, cancel(bob, 1))
	expect("a request whose seq another one has", pending.Key{Session: ann, Seq: 1, Digest: 1})
	expect("a grant", held, cancel(ann, 1), fmt.Sprintf("%d.%d %T", ann, releaseSeq|1, &wire.Command_Release{}))
	if locks := n.m.HoldsOf(ann); len(locks) != 0 {
		t.Errorf("left are %v", locks)
	}
	if strings.Contains(n.log.String(), "cannot") || !strings.Contains(n.log.String(), "ended an abandoned acquire") {
		t.Errorf("log: %s", n.log.String())
	}
	n.answer = &wire.Result{Status: wire.Status_UNAVAILABLE}
	expect("a wait without a leader", pending.Key{Session: bob, Seq: 9}, cancel(bob, 9))
	if !strings.Contains(n.log.String(), "cannot cancel an abandoned acquire") {
		t.Errorf("log: %s", n.log.String())
	}
}
