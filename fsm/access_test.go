package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// asCaller returns the command with a caller of that identity.
func asCaller(identity string, cmd *wire.Command) *wire.Command {
	cmd.Caller = &wire.Caller{Identity: identity, Credential: "certificate 01", Address: "10.0.0.1:7"}
	return cmd
}

func openAs(t tester, m *Machine, name, identity string) uint64 {
	t.Helper()
	r := applyOne(t, m, asCaller(identity, &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{
		SecretHash: secretHash(name), Client: &wire.ClientInfo{Name: name},
	}}})).Results[0]
	if r.Status != wire.Status_OK {
		t.Fatalf("open: %v", r)
	}
	return r.Session.SessionId
}

// setPolicy lets root replace the policy.
func setPolicy(t tester, m *Machine, policy *wire.Policy) {
	t.Helper()
	_, revision := m.Access().Policy()
	r := applyOne(t, m, asCaller("root", &wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{
		Policy: policy, ExpectedRevision: revision, Reason: "r",
	}}})).Results[0]
	if r.Status != wire.Status_OK {
		t.Fatalf("set the policy: %v", r)
	}
}

// bindings returns a policy that gives one role to each identity; root is an admin.
func bindings(pairs ...string) *wire.Policy {
	p := &wire.Policy{Bindings: []*wire.Binding{{Identity: "root", Roles: []string{"admin"}}}}
	for i := 0; i < len(pairs); i += 2 {
		p.Bindings = append(p.Bindings, &wire.Binding{Identity: pairs[i], Roles: []string{pairs[i+1]}})
	}
	return p
}

func tryAcquire(t tester, m *Machine, session, seq uint64, name string) wire.Status_Code {
	t.Helper()
	return applyOne(t, m, &wire.Command{SessionId: session, Seq: seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
		Locks: []*wire.LockRequest{{Name: name}}, WaitForever: true,
	}}}).Results[0].Status
}

func createToken(secret, name string, ends int64) *wire.Command {
	return &wire.Command{Op: &wire.Command_CreateToken{CreateToken: &wire.CreateToken{Sha256: secretHash(secret), Name: name, EndsUnixMs: ends, Reason: "r"}}}
}

// guarded returns a machine with a policy, two tokens and four sessions of three identities: ann (sessions 1 and 2)
// holds "a", ben (3) waits for it without the right that he had, cid (4) waits behind him.
func guarded(t tester) *Machine {
	t.Helper()
	m := bootstrapped(t)
	setPolicy(t, m, &wire.Policy{
		Roles: []*wire.Role{{Name: "team", Cluster: []wire.Verb{wire.Verb_AUDIT}, Locks: []*wire.LockRule{
			{Prefix: "team/", Verbs: []wire.Verb{wire.Verb_READ, wire.Verb_LOCK}}, {Name: "a", Verbs: []wire.Verb{wire.Verb_LOCK}},
		}}},
		Bindings: bindings("ann", "team", "ben", "team", "cid", "user", "ca*", "reader").Bindings,
	})
	applyOne(t, m, asCaller("root", createToken("t1", "ann", 0)))
	applyOne(t, m, asCaller("root", createToken("t2", "ben", 9_000)))
	for i, identity := range []string{"ann", "ann", "ben", "cid"} {
		id := openAs(t, m, fmt.Sprint("s", i), identity)
		if i != 1 {
			tryAcquire(t, m, id, 1, "a")
		}
	}
	policy, _ := m.Access().Policy()
	policy = proto.CloneOf(policy)
	policy.Bindings[2].Roles[0] = "reader"
	setPolicy(t, m, policy)
	return m
}

// TestRightsAfterARestore checks that a machine restored from its snapshot gives the same rights to the sessions that
// it had: the snapshot has the policy after them.
func TestRightsAfterARestore(t *testing.T) {
	m := guarded(t)
	for name, m := range map[string]*Machine{"itself": m.Fork(), "restored": restored(t, snapshotOf(t, m))} {
		for session, want := range map[uint64]wire.Status_Code{1: wire.Status_GRANTED, 3: wire.Status_PERMISSION_DENIED, 4: wire.Status_GRANTED} {
			if got := tryAcquire(t, m, session, 7, fmt.Sprint("team/", session)); got != want {
				t.Errorf("%s: session %d: %v, want %v", name, session, got, want)
			}
		}
		hold := m.HoldsOf(1)[0]
		applied := releaseNow(t, m, 1, 8, &wire.Result{HoldId: hold.HoldId, Token: hold.Token})
		if e := applied.Events; len(e) != 3 || !denied(e[1]) || e[1].SessionId != 3 || e[2].Type != wire.Event_GRANTED || e[2].SessionId != 4 {
			t.Errorf("%s: the release leads to %v", name, e)
		}
	}
}

// TestRightsFollowThePolicy changes the policy between requests of one session, on both sides of a fork.
func TestRightsFollowThePolicy(t *testing.T) {
	m := bootstrapped(t)
	id := openAs(t, m, "s", "ann")
	seq := uint64(0)
	try := func(m *Machine, want wire.Status_Code) {
		t.Helper()
		seq++
		if got := tryAcquire(t, m, id, seq, fmt.Sprint("l", seq)); got != want {
			t.Errorf("request %d: %v, want %v", seq, got, want)
		}
	}
	try(m, wire.Status_GRANTED)
	setPolicy(t, m, bindings())
	try(m, wire.Status_PERMISSION_DENIED)
	fork := m.Fork()
	setPolicy(t, fork, bindings("ann", "user"))
	try(fork, wire.Status_GRANTED)
	try(m, wire.Status_PERMISSION_DENIED)
	setPolicy(t, fork, bindings("ann", "reader"))
	try(fork, wire.Status_PERMISSION_DENIED)
	setPolicy(t, fork, nil)
	try(fork, wire.Status_GRANTED)
	try(m, wire.Status_PERMISSION_DENIED)
}

// TestAccessIsImmutable checks that what a reader got stays as it was.
func TestAccessIsImmutable(t *testing.T) {
	m := guarded(t)
	before := m.Access()
	policy, revision := before.Policy()
	tokens, read := fmt.Sprint(before.Tokens()), proto.CloneOf(policy)
	applyOne(t, m, asCaller("root", createToken("t3", "cid", 0)))
	applyOne(t, m, asCaller("root", &wire.Command{Op: &wire.Command_RevokeToken{RevokeToken: &wire.RevokeToken{TokenId: tokenID(secretHash("t1")), Reason: "r"}}}))
	setPolicy(t, m, bindings("ann", "admin"))
	again, then := before.Policy()
	if fmt.Sprint(before.Tokens()) != tokens || !same(again, read) || then != revision || before.Rights() == m.Access().Rights() {
		t.Errorf("tokens %v, were %s; policy %v, was %v", before.Tokens(), tokens, again, read)
	}
}

// TestTokensAreFoundByTheirWholeHash looks tokens up by hashes that share their id.
func TestTokensAreFoundByTheirWholeHash(t *testing.T) {
	m := guarded(t)
	sum := secretHash("t1")
	other := bytes.Clone(sum)
	other[31]++
	a := m.Access()
	if got := a.Token(sum); got.GetName() != "ann" || got.GetCreatedBy() != "root" {
		t.Errorf("token %v", got)
	}
	for _, sum := range [][]byte{other, secretHash("t3"), sum[:6], nil} {
		if got := a.Token(sum); got != nil {
			t.Errorf("%x is the token %v", sum, got)
		}
	}
	if got := a.TokenByID(tokenID(secretHash("t2"))); got.GetName() != "ben" || a.TokenByID("0") != nil || New(Level).Access().TokenByID("0") != nil {
		t.Errorf("token %v", got)
	}
	op := createToken("t4", "ann", 0)
	op.GetCreateToken().Sha256 = other
	if r := applyOne(t, m, asCaller("root", op)).Results[0]; r.Status != wire.Status_FAILED_PRECONDITION {
		t.Errorf("another token with the id of one: %v", r)
	}
}

// TestTokensAreBounded creates as many tokens as a cluster may have, and one more. A known token may be created again.
func TestTokensAreBounded(t *testing.T) {
	m := bootstrapped(t)
	for i := range 1_000 {
		if r := applyOne(t, m, createToken(fmt.Sprint(i), "ann", 0)).Results[0]; r.Status != wire.Status_OK {
			t.Fatalf("token %d: %v", i, r)
		}
	}
	if r := applyOne(t, m, createToken("more", "ann", 0)).Results[0]; r.Status != wire.Status_RESOURCE_EXHAUSTED || !strings.HasPrefix(r.Message, "max_tokens: 1000") {
		t.Errorf("one more: %v", r)
	}
	if r := applyOne(t, m, createToken("7", "ann", 0)).Results[0]; r.Status != wire.Status_OK {
		t.Errorf("again: %v", r)
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	m = restored(t, snapshotOf(t, m))
	if got := len(m.Access().Tokens()); got != 1_000 {
		t.Errorf("%d tokens after a restore", got)
	}
}

// TestAccountsLastAsLongAsSessions counts the sessions of each identity.
func TestAccountsLastAsLongAsSessions(t *testing.T) {
	m := guarded(t)
	count := func() (all []string) {
		m.accounts.each("", func(a *account) bool { all = append(all, fmt.Sprint(a.name, " ", a.used.Sessions)); return true })
		return all
	}
	if got := count(); !slices.Equal(got, []string{"ann 2", "ben 1", "cid 1"}) {
		t.Errorf("accounts %v", got)
	}
	for _, id := range []uint64{1, 3} {
		applyOne(t, m, &wire.Command{SessionId: id, Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}})
	}
	if got := count(); !slices.Equal(got, []string{"ann 1", "cid 1"}) {
		t.Errorf("accounts %v after two sessions closed", got)
	}
}

// TestMismatchHidesTheLimit checks that the text of a MISMATCH has the limit of a semaphore only for whoever may read it.
func TestMismatchHidesTheLimit(t *testing.T) {
	m := bootstrapped(t)
	policy := bindings("cid", "user", "ann", "locker")
	policy.Roles = []*wire.Role{{Name: "locker", Locks: []*wire.LockRule{{Name: "pool", Verbs: []wire.Verb{wire.Verb_LOCK}}}}}
	setPolicy(t, m, policy)
	acquire := func(name, identity string, limit uint64) *wire.Result {
		session := openAs(t, m, name, identity)
		return applyOne(t, m, &wire.Command{SessionId: session, Seq: 1, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: "pool", Limit: limit, Permits: 1}},
		}}}).Results[0]
	}
	if r := acquire("first", "cid", 743); r.Status != wire.Status_GRANTED {
		t.Fatal(r)
	}
	for identity, shown := range map[string]bool{"cid": true, "ann": false} {
		r := acquire("second of "+identity, identity, 5)
		if r.Status != wire.Status_MISMATCH || strings.Contains(r.Message, "743") != shown {
			t.Errorf("%s: %v", identity, r)
		}
	}
}
