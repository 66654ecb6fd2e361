package read

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// world is a random cluster with a policy. No lock's name is part of another one's.
type world struct {
	t        testing.TB
	rand     *rand.Rand
	source   *source
	names    []string
	sessions []uint64 // by identity
	seqs     []uint64
	events   []*wire.Event
	results  []*asked
	policy   *wire.Policy
}

// asked is an acquire and its answer.
type asked struct {
	who     int
	request *wire.Acquire
	result  *wire.Result
}

var identities = []string{"ann", "bob", "cleo", "anonymous"}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{t: t, rand: rand.New(rand.NewPCG(seed, 1)), source: &source{machine: fsm.New(fsm.Level)}}
	for i, below := range []string{"a/", "a/", "a/b/", "a/b/", "b/", "b/", "b/c/", ""} {
		w.names = append(w.names, fmt.Sprintf("%sq%dz", below, i))
	}
	w.apply(&wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c", Settings: fsm.DefaultSettings()}}})
	for i, who := range identities {
		hash := make([]byte, 32)
		hash[0] = byte(i + 1)
		opened := w.apply(&wire.Command{Caller: &wire.Caller{Identity: who}, Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: hash}}})
		w.sessions, w.seqs = append(w.sessions, opened.GetSession().GetSessionId()), append(w.seqs, 0)
	}
	return w
}

func (w *world) apply(cmd *wire.Command) *wire.Result {
	w.t.Helper()
	data, err := proto.Marshal(&wire.Entry{Level: fsm.Level, Commands: []*wire.Command{cmd}})
	if err != nil {
		w.t.Fatal(err)
	}
	applied, err := w.source.machine.Apply(data)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range applied.Events {
		w.events = append(w.events, proto.CloneOf(e))
	}
	return proto.CloneOf(applied.Results[0])
}

// act acquires or releases at random, before there is a policy: so everybody is in everything.
func (w *world) act() {
	who := w.rand.IntN(len(identities))
	w.seqs[who]++
	cmd := &wire.Command{SessionId: w.sessions[who], Seq: w.seqs[who]}
	if holds := w.source.machine.HoldsOf(w.sessions[who]); len(holds) > 0 && w.rand.IntN(3) == 0 {
		h := holds[w.rand.IntN(len(holds))]
		cmd.Op = &wire.Command_Release{Release: &wire.Release{HoldId: h.GetHoldId(), Token: h.GetToken()}}
		w.apply(cmd)
		return
	}
	op := &wire.Acquire{Owner: uint64(w.rand.IntN(2)), WaitForever: w.rand.IntN(4) > 0, AllowDeadlock: w.rand.IntN(3) == 0}
	for _, i := range w.rand.Perm(len(w.names))[:1+w.rand.IntN(3)] {
		op.Locks = append(op.Locks, &wire.LockRequest{Name: w.names[i], Mode: wire.Mode(1 + w.rand.IntN(2))})
	}
	cmd.Op = &wire.Command_Acquire{Acquire: op}
	w.results = append(w.results, &asked{who, op, w.apply(cmd)})
}

// govern sets a random policy.
func (w *world) govern() {
	verbs := []wire.Verb{wire.Verb_READ, wire.Verb_LOCK, wire.Verb_OPERATE}
	w.policy = &wire.Policy{Bindings: []*wire.Binding{{Identity: "root", Roles: []string{"admin"}}}}
	for i, who := range identities {
		role := &wire.Role{Name: fmt.Sprint("r", i)}
		for range w.rand.IntN(4) {
			rule := &wire.LockRule{Verbs: []wire.Verb{verbs[w.rand.IntN(2)]}}
			if w.rand.IntN(2) == 0 {
				rule.Name = w.names[w.rand.IntN(len(w.names))]
			} else {
				rule.Prefix = []string{"a/", "a/b/", "b/", "b/c/", "/"}[min(w.rand.IntN(20), 4)]
			}
			role.Locks = append(role.Locks, rule)
		}
		role.Locks = append(role.Locks, &wire.LockRule{Name: "own/" + who, Verbs: verbs})
		w.policy.Roles = append(w.policy.Roles, role)
		w.policy.Bindings = append(w.policy.Bindings, &wire.Binding{Identity: who, Roles: []string{role.Name}})
	}
	w.apply(&wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: w.policy, Reason: "test"}}})
}

// mayRead evaluates the policy without package rights.
func (w *world) mayRead(who int, name string) bool {
	return slices.ContainsFunc(w.policy.Roles[who].Locks, func(rule *wire.LockRule) bool {
		covers := rule.Name == name || rule.Prefix == "/" || rule.Prefix != "" && strings.HasPrefix(name, rule.Prefix)
		return covers && slices.Contains(rule.Verbs, wire.Verb_READ)
	})
}

func (w *world) readsAll(who int) bool {
	return slices.ContainsFunc(w.policy.Roles[who].Locks, func(rule *wire.LockRule) bool {
		return rule.Prefix == "/" && slices.Contains(rule.Verbs, wire.Verb_READ)
	})
}

// check compares everything that an identity sees with what it may see.
func (w *world) check(who int) {
	caller, err := access.Authenticate(w.source, "", access.Presented{Origin: &wire.Caller{Identity: identities[who]}})
	if err != nil {
		w.t.Fatal(err)
	}
	view := New(w.source, 1<<20, nil).As(caller)
	var seen []proto.Message
	for _, prefix := range []string{"", "a/", "a/b", "b/", "q"} {
		seen = append(seen, w.checkList(who, view, prefix)...)
	}
	seen = append(seen, w.checkSessions(who, view), w.checkEvents(who, caller))
	cycles, _ := view.ListDeadlocks(&wire.ListDeadlocksRequest{})
	seen = append(seen, cycles, w.checkContended(who, view))
	seen = append(seen, w.checkEachSession(who, view)...)
	for _, name := range w.names {
		if w.mayRead(who, name) {
			if one, refused := view.GetLock(&wire.GetLockRequest{Name: name}); refused == nil {
				seen = append(seen, one)
			}
			continue
		}
		for _, h := range w.holders(name) {
			verdict, _ := view.VerifyToken(&wire.VerifyTokenRequest{Name: name, Token: h.GetToken()})
			if !verdict.GetHeld() || verdict.GetHolder() != nil {
				w.t.Errorf("%s verifies the token of %s: %v", identities[who], name, verdict)
			}
		}
	}
	w.noneOf(who, "reads", seen)
	w.checkSamples(who, view)
	w.checkAnswers(who, caller)
}

func (w *world) holders(name string) []*wire.HolderInfo {
	lock, _ := w.source.machine.GetLock(&wire.GetLockRequest{Name: name})
	return lock.GetHolders()
}

// checkList reads a listing in pages of one and compares the names with the model.
func (w *world) checkList(who int, view *View, prefix string) (pages []proto.Message) {
	var got, want []string
	for token := ""; ; {
		page, refused := view.ListLocks(&wire.ListLocksRequest{Prefix: prefix, PageSize: 1, PageToken: token})
		if refused != nil {
			w.t.Fatal(refused)
		}
		pages = append(pages, page)
		for _, l := range page.GetLocks() {
			got = append(got, l.GetName())
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	for _, name := range slices.Sorted(slices.Values(w.names)) {
		if _, exists := w.source.machine.GetLock(&wire.GetLockRequest{Name: name}); exists && strings.HasPrefix(name, prefix) && w.mayRead(who, name) {
			want = append(want, name)
		}
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("%s lists %q: %q, want %q", identities[who], prefix, got, want)
	}
	return pages
}

func (w *world) checkSessions(who int, view *View) proto.Message {
	page, _ := view.ListSessions(&wire.ListSessionsRequest{})
	want := 1
	if w.readsAll(who) {
		want = len(identities)
	}
	if len(page.GetSessions()) != want || want == 1 && page.GetSessions()[0].GetIdentity() != identities[who] {
		w.t.Errorf("%s sees the sessions %v", identities[who], page.GetSessions())
	}
	return page
}

// checkContended verifies that exactly the locks are counted that are waited for and may be read.
func (w *world) checkContended(who int, view *View) proto.Message {
	got, refused := view.ListContended(&wire.ListContendedRequest{})
	if refused != nil {
		w.t.Fatal(refused)
	}
	var names, want []string
	for _, l := range got.GetLocks() {
		names = append(names, l.GetName())
	}
	for _, name := range w.names {
		if l, exists := w.source.machine.GetLock(&wire.GetLockRequest{Name: name}); exists && l.GetQueueLength() > 0 && w.mayRead(who, name) {
			want = append(want, name)
		}
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) || got.GetContended() != uint64(len(want)) {
		w.t.Errorf("%s sees %d contended locks, %q, want %q", identities[who], got.GetContended(), names, want)
	}
	return got
}

// checkEachSession verifies that a session is seen exactly if it is an own one, or all locks may be read, or one of those
// that it holds or waits for. All other sessions are refused like one that does not exist.
func (w *world) checkEachSession(who int, view *View) (seen []proto.Message) {
	for i, id := range w.sessions {
		known := slices.ContainsFunc(w.source.machine.LockNames(id), func(name string) bool { return w.mayRead(who, name) })
		got, refused := view.GetSession(&wire.GetSessionRequest{SessionId: id})
		if want := i == who || w.readsAll(who) || known; (refused == nil) != want {
			w.t.Errorf("%s asks for the session of %s: %v, %v", identities[who], identities[i], got, refused)
		}
		if refused != nil {
			_, unknown := view.GetSession(&wire.GetSessionRequest{SessionId: 1 << 40})
			text := strings.ReplaceAll(unknown.GetMessage(), fmt.Sprint(uint64(1<<40)), fmt.Sprint(id))
			if refused.GetStatus() != wire.Status_NOT_FOUND || refused.GetMessage() != text {
				w.t.Errorf("%s asks for the session of %s: %v, and for an unknown one: %v", identities[who], identities[i], refused, unknown)
			}
			continue
		}
		if i != who && !w.readsAll(who) && (int(got.GetSession().GetHolds()) != len(got.GetHolds()) || int(got.GetSession().GetWaits()) != len(got.GetWaits())) {
			w.t.Errorf("%s sees more of the session of %s than it may read: %v", identities[who], identities[i], got)
		}
		seen = append(seen, got)
	}
	return seen
}

// checkEvents verifies that an event is seen exactly if one of its locks may be read, or it is of an own session.
func (w *world) checkEvents(who int, caller *access.Caller) proto.Message {
	all := &wire.WatchResponse{}
	for _, e := range w.events {
		names := e.GetLocks()
		if e.GetLock() != "" && len(names) == 0 {
			names = []string{e.GetLock()}
		}
		want := slices.ContainsFunc(names, func(name string) bool { return w.mayRead(who, name) }) ||
			len(names) == 0 && (w.readsAll(who) || e.GetIdentity() == identities[who])
		if e.GetAudit() != nil {
			want = false // nobody here has AUDIT on the cluster
		}
		before := proto.CloneOf(e)
		got := caller.Event(e)
		if (got != nil) != want {
			w.t.Errorf("%s sees %v: %v", identities[who], e, got)
		}
		if !proto.Equal(before, e) {
			w.t.Errorf("the event was changed for all: %v, was %v", e, before)
		}
		if got != nil {
			all.Events = append(all.Events, got)
		}
	}
	return all
}

// checkAnswers verifies the answers to the identity's own requests. They name the locks of the request, and no others.
func (w *world) checkAnswers(who int, caller *access.Caller) {
	for _, a := range w.results {
		if a.who != who {
			continue
		}
		before := proto.CloneOf(a.result)
		req := &wire.Request{Body: &wire.Request_Acquire{Acquire: a.request}}
		w.noneOf(who, "is answered", []proto.Message{caller.Answer(req, a.result)}, access.NamesOf(a.request)...)
		if !proto.Equal(before, a.result) {
			w.t.Errorf("the remembered answer was changed: %v, was %v", a.result, before)
		}
	}
}

// checkSamples verifies that what expires is seen exactly by those who may read all locks, and everything else by all.
func (w *world) checkSamples(who int, view *View) {
	sample := &wire.Sample{
		UnixMs: 1, Locks: 2, Sessions: 3, Holds: 4, Waiters: 5, Grants: 6, Expirations: 7, DiskSyncUs: 8, DiskSyncMaxUs: 9, CommitUs: 10,
	}
	want := proto.CloneOf(sample)
	if !w.readsAll(who) {
		want.Expirations = 0
	}
	w.source.samples = &wire.ListSamplesResponse{NodeId: "n1", IntervalMs: 11, Samples: []*wire.Sample{sample}}
	got, refused := view.ListSamples()
	if refused != nil || got.GetNodeId() != "n1" || got.GetIntervalMs() != 11 || len(got.GetSamples()) != 1 || !proto.Equal(got.GetSamples()[0], want) {
		w.t.Errorf("%s sees the samples %v, %v, want %v", identities[who], got, refused, want)
	}
	if sample.GetExpirations() != 7 {
		w.t.Error("the sample was changed for all")
	}
}

// noneOf verifies that messages contain no name that the identity may not read, apart from known ones.
func (w *world) noneOf(who int, what string, messages []proto.Message, known ...string) {
	for _, m := range messages {
		text, err := protojson.Marshal(m)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, name := range w.names {
			if !w.mayRead(who, name) && !slices.Contains(known, name) && strings.Contains(string(text), name) {
				w.t.Errorf("%s %s %s", identities[who], what, text)
			}
		}
	}
}

func runWorld(t testing.TB, seed uint64) {
	w := newWorld(t, seed)
	for range 40 {
		w.act()
	}
	w.govern()
	for who := range identities {
		w.check(who)
	}
	if t.Failed() {
		t.Fatalf("seed %d: %v", seed, w.policy)
	}
}

// TestNobodySeesBeyondItsRights compares what identities see in random clusters with a model of the policy.
func TestNobodySeesBeyondItsRights(t *testing.T) {
	for seed := range uint64(150) {
		runWorld(t, seed)
	}
}

// FuzzNobodySeesBeyondItsRights is the same with more seeds.
func FuzzNobodySeesBeyondItsRights(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { runWorld(t, seed) })
}
