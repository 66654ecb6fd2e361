package fsm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/test/model"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// walkPort is the Redis port of a node in a walk: its start, the number of its last request, and all its requests.
type walkPort struct {
	boot, seq uint64
	asked     []*wire.ChangeKeys
}

// useKeys makes a walk one with keys: two nodes send requests of Redis ports.
func (w *walker) useKeys(boot *wire.Command) {
	w.keyed, w.ports = true, map[string]*walkPort{}
	boot.GetBootstrap().Members = append(boot.GetBootstrap().Members, &wire.Member{Id: "n2", Level: Level})
}

// keys returns a request of a Redis port, or what a leader records of keys.
func (w *walker) keys() *wire.Command {
	if w.one(10) {
		return w.recordRemaining()
	}
	node := []string{"n1", "n1", "n2", "n2", "n3"}[w.roll(5)]
	if w.ports[node] == nil {
		w.ports[node] = &walkPort{boot: 1}
	}
	p := w.ports[node]
	if len(p.asked) > 0 && w.one(6) {
		// A retry, mostly of a late request.
		again := p.asked[max(w.roll(len(p.asked)), len(p.asked)-1-w.roll(4))]
		return &wire.Command{Op: &wire.Command_ChangeKeys{ChangeKeys: proto.CloneOf(again)}}
	}
	if w.one(30) {
		p.boot, p.seq = w.about(p.boot+1), 0
	}
	p.seq++
	op := w.changeKeys()
	op.NodeId, op.Boot, op.Seq = node, p.boot, p.seq
	op.AckedBelow = p.seq - min(p.seq, uint64(w.roll(4)))
	w.spoilKeys(op)
	p.asked = append(p.asked, proto.CloneOf(op))
	return &wire.Command{Op: &wire.Command_ChangeKeys{ChangeKeys: op}}
}

// changeKeys returns a request that mostly has a reason.
func (w *walker) changeKeys() *wire.ChangeKeys {
	op := &wire.ChangeKeys{
		Action: wire.ChangeKeys_Action(1 + w.roll(6)), TtlMs: w.keyTTL(), Client: w.client(), Force: w.one(2),
	}
	if !w.any(w.ofKey) && w.one(2) || w.one(4) {
		op.Action = wire.ChangeKeys_ACQUIRE
	}
	op.Names = w.keyNames(op.Action)
	c, s := w.d.KeyOf(op.Names[0])
	op.Value = w.keyValue()
	if c != nil && s.ByValue && !w.one(4) {
		op.Value = []byte(s.Value)
	}
	acquires := op.Action == wire.ChangeKeys_ACQUIRE || op.Action == wire.ChangeKeys_ACQUIRE_OR_EXTEND
	switch {
	case w.one(4) && len(op.Value) > 0:
		op.CompareBytes = uint32(w.roll(len(op.Value) + 1))
		op.Value = append(slices.Clone(op.Value), w.value()...)
	case w.one(6) && !acquires:
		op.Value = nil
	}
	if len(op.Names) == 1 && w.one(6) {
		op.Version = &wire.KeyVersion{}
		if c != nil {
			op.Version.HoldId = w.about(c.ID)
		}
		if c != nil && s.ByValue {
			op.Version.Generation = w.about(s.Generation)
		}
	}
	return op
}

// keyNames returns the names of free locks to acquire, otherwise of keys, and sometimes of others.
func (w *walker) keyNames(action wire.ChangeKeys_Action) (names []string) {
	fits := func(name string) bool {
		_, s := w.d.KeyOf(name)
		return action == wire.ChangeKeys_ACQUIRE && w.d.Locks[name] == nil || action != wire.ChangeKeys_ACQUIRE && s != nil && s.ByValue
	}
	for range 1 + w.roll(3)*w.roll(2) {
		name := w.name()
		for range 4 {
			if !fits(name) && !w.one(6) {
				name = walkNames[w.roll(w.names)]
			}
		}
		if !slices.Contains(names, name) && (len(names) == 0 || action != wire.ChangeKeys_ACQUIRE_OR_EXTEND) {
			names = append(names, name)
		}
	}
	return names
}

// ofKey reports whether a claim belongs to a key.
func (w *walker) ofKey(c *model.Claim) bool {
	s := w.d.Session(c.Session)
	return s != nil && s.ByValue
}

func (w *walker) keyTTL() uint32 { return []uint32{10, 5_000, 7_000, 90_000, 86_400_000}[w.roll(5)] }

func (w *walker) keyValue() []byte { return []byte([]string{"v", "w", "vw"}[w.roll(3)]) }

// spoilKeys sometimes makes a request invalid.
func (w *walker) spoilKeys(op *wire.ChangeKeys) {
	switch w.roll(150) {
	case 0:
		op.Names = nil
	case 1:
		op.Names = append(op.Names, op.Names[0])
	case 2:
		op.Names[0] = "a//b"
	case 3:
		op.Action = wire.ChangeKeys_Action(7 * w.roll(2))
	case 4:
		op.TtlMs = []uint32{9, 86_400_001}[w.roll(2)]
	case 5:
		op.AckedBelow = op.Seq + 1
	case 6:
		op.Seq = []uint64{0, 1 << 63}[w.roll(2)]
	case 7:
		op.CompareBytes = uint32(len(op.Value)) + 1
	case 8:
		op.NodeId = []string{"", "n\n", "n9"}[w.roll(3)]
	case 9:
		op.Value = nil
	case 10:
		op.Value = []byte("123456789")
	case 11:
		op.Version, op.Names = &wire.KeyVersion{}, []string{"a", "b"}
	case 12:
		op.Client = &wire.ClientInfo{Address: "two\nlines"}
	case 13:
		op.Boot = 0
	}
}

// recordRemaining mostly records what remains of the TTLs of live keys.
func (w *walker) recordRemaining() *wire.Command {
	op := &wire.RecordRemaining{Term: w.about(w.d.Term)}
	for _, s := range w.d.Live {
		if s.ByValue && !w.one(3) {
			op.Keys = append(op.Keys, &wire.RecordRemaining_Remaining{
				SessionId: w.about(s.ID), Generation: w.about(s.Generation), RemainingMs: uint32(w.about(uint64(s.TTL) / uint64(1+w.roll(2)))),
			})
		}
	}
	if w.one(20) {
		op.Keys = slices.Repeat([]*wire.RecordRemaining_Remaining{{SessionId: 1}}, 1_024+w.roll(2))
	}
	return &wire.Command{Op: &wire.Command_RecordRemaining{RecordRemaining: op}}
}

// keyLease turns an acquire by a lease into one of a key.
func (w *walker) keyLease(op *wire.OpenLease) {
	op.OwnerValue, op.TtlMs = w.keyValue(), w.keyTTL()
	acquire := &wire.Acquire{Locks: []*wire.LockRequest{{Name: w.name()}}, WaitMs: uint32(w.roll(3) * 500), WaitForever: w.one(2)}
	if w.any(w.ofKey) && !w.one(4) {
		acquire.Locks[0].Name = w.some(w.ofKey).Locks[0].Name
	}
	switch w.roll(40) {
	case 0:
		acquire = op.Acquire
	case 1:
		op.TtlMs = 9
	case 2:
		op.OwnerValue = []byte("123456789")
	case 3:
		acquire.Reentrant = true
	}
	op.Acquire = acquire
}

// keyHolder returns the identity that mostly has the first key of a request, or any.
func (w *walker) keyHolder(op *wire.ChangeKeys) string {
	for _, name := range op.GetNames() {
		if _, s := w.d.KeyOf(name); s != nil {
			return s.Identity
		}
	}
	return walkIdentities[1+w.roll(3)]
}

// compareKeys compares what the Redis port sees of each lock.
func compareKeys(t tester, m *Machine, d *model.Model) {
	t.Helper()
	for _, name := range walkNames {
		got, exists := m.Key(name)
		want := Key{}
		if c, s := d.KeyOf(name); c != nil {
			want = Key{HoldID: c.ID, Token: c.Token, Session: s.ID, Identity: s.Identity, Client: s.Client}
			if s.ByValue {
				want.Held, want.Value, want.Generation, want.TTL = true, s.Value, s.Generation, s.TTL
			}
		}
		if !same(got.Client, want.Client) {
			t.Fatalf("client of %q: %v\nthe model %v", name, got.Client, want.Client)
		}
		got.Client, want.Client = nil, nil
		if fmt.Sprint(got) != fmt.Sprint(want) || exists != (d.Locks[name] != nil) {
			t.Fatalf("key %q: %+v, exists: %v\nthe model %+v", name, got, exists, want)
		}
	}
}

func ofKey(p *pair, c *model.Claim) bool {
	s := p.d.Session(c.Session)
	return s != nil && s.ByValue
}

// keyStates and keySteps are the rare states and steps of keys.
var keyStates = []rareState{
	{"a key", 50, anyClaim(func(p *pair, c *model.Claim) bool { return c.Holds() && ofKey(p, c) })},
	{"a key that waits", 20, anyClaim(func(p *pair, c *model.Claim) bool { return c.Queued() && ofKey(p, c) })},
	{"a key that others wait for", 20, anyClaim(func(p *pair, c *model.Claim) bool { return c.Holds() && ofKey(p, c) && waitedFor(p, c) })},
	{"a key in a grace", 2, anyClaim(func(p *pair, c *model.Claim) bool { return c.Graced() && ofKey(p, c) })},
	{"a key of which less remains", 10, anyClaim(func(p *pair, c *model.Claim) bool { return ofKey(p, c) && p.d.Session(c.Session).Remaining > 0 })},
	{"results of several ports", 20, func(p *pair) bool { return p.m.keySenders.len() > 1 && p.m.keyResults.len() > 2 }},
}

// with returns the request of a port if it had that result.
func (h *happening) with(status wire.Status_Code) *wire.ChangeKeys {
	if op := h.cmd.GetChangeKeys(); op != nil && h.answer.Status == status {
		return op
	}
	return nil
}

var keySteps = []rareStep{
	{"several keys acquired", 8, func(h *happening) bool {
		return h.with(wire.Status_GRANTED) != nil && h.answer.Count > 1 && len(h.p.d.News) > 2
	}},
	{"several keys refused after the first", 5, func(h *happening) bool {
		op := h.with(wire.Status_RESOURCE_EXHAUSTED)
		return len(op.GetNames()) > 1
	}},
	{"a request repeated", 20, func(h *happening) bool {
		return h.answered && h.with(wire.Status_GRANTED) != nil
	}},
	{"a refusal repeated", 20, func(h *happening) bool {
		return h.answered && h.with(wire.Status_NOT_ACQUIRED) != nil
	}},
	{"a foreign hold deleted", 5, func(h *happening) bool {
		return h.with(wire.Status_OK) != nil && slices.ContainsFunc(h.p.d.News, func(e *wire.Event) bool { return e.Type == wire.Event_FORCED })
	}},
	{"a hold not deleted", 5, func(h *happening) bool {
		return h.with(wire.Status_PERMISSION_DENIED).GetAction() == wire.ChangeKeys_DELETE
	}},
	{"a key granted after its wait", 3, func(h *happening) bool {
		return slices.ContainsFunc(h.p.d.News, func(e *wire.Event) bool { return e.Type == wire.Event_GRANTED && e.Waited && e.ByValue })
	}},
	{"a key released for others", 10, func(h *happening) bool {
		return h.with(wire.Status_OK) != nil && slices.ContainsFunc(h.p.d.News, func(e *wire.Event) bool { return e.Type == wire.Event_GRANTED && e.Waited })
	}},
	{"a value replaced", 2, func(h *happening) bool {
		op := h.with(wire.Status_OK)
		return op.GetAction() == wire.ChangeKeys_EXTEND && op.CompareBytes > 0 && int(op.CompareBytes) < len(op.Value) && len(h.p.d.News) > 0
	}},
	{"a key extended by its secret", 1, func(h *happening) bool {
		return h.cmd.GetExtendLease() != nil && slices.ContainsFunc(h.p.d.News, func(e *wire.Event) bool { return e.ByValue })
	}},
	{"a start that is over", 5, func(h *happening) bool { return h.with(wire.Status_STALE) != nil }},
}

// mustHaveSeenKeys fails unless the walks with keys produced every outcome, and every rare state and step.
func mustHaveSeenKeys(t *testing.T, seen map[string]int, commands int, sequences uint64) {
	for what, outcomes := range map[string]string{
		"ChangeKeys": "GRANTED OK NOT_ACQUIRED NOT_HELD NOT_FOUND STALE INVALID_ARGUMENT RESOURCE_EXHAUSTED UNAVAILABLE " +
			"PERMISSION_DENIED FAILED_PRECONDITION",
		"RecordRemaining": "OK FAILED_PRECONDITION INVALID_ARGUMENT",
		"OpenLease":       "GRANTED QUEUED INVALID_ARGUMENT", "ExtendLease": "OK", "ReleaseLease": "OK", "ConfirmLease": "GRANTED",
	} {
		for outcome := range strings.FieldsSeq(outcomes) {
			mustHave(t, seen, what+" "+outcome, commands/10_000)
		}
	}
	thousands := int(sequences / 1_000)
	for _, step := range keySteps {
		mustHave(t, seen, step.name, step.least*thousands)
	}
	for _, state := range keyStates {
		for _, what := range []string{", restarted", ", failed"} {
			mustHave(t, seen, state.name+what, state.least*min(thousands, 1))
		}
	}
}
