package judge

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// scene produces events like a state machine that keeps no rules.
type scene struct {
	rules    *rules
	revision uint64
	token    uint64
}

func newScene() *scene {
	s := &scene{rules: newRules(), token: 100}
	for id := range uint64(3) {
		s.tell(nil, &wire.Event{Type: wire.Event_SESSION_OPENED, SessionId: id + 1})
	}
	return s
}

func (s *scene) tell(op *wire.Acquire, events ...*wire.Event) {
	s.revision++
	cmd := &wire.Command{}
	if op != nil {
		cmd.Op = &wire.Command_Acquire{Acquire: op}
	}
	for _, e := range events {
		e.Revision = s.revision
	}
	s.rules.step(step{revision: s.revision, cmd: cmd, events: events})
}

// ask adds a session's acquire, granted immediately or queued. It returns the claim's ID.
func (s *scene) ask(session uint64, what wire.Event_Type, locks ...*wire.LockRequest) uint64 {
	id := s.revision + 1
	e := &wire.Event{Type: what, Lock: locks[0].Name, SessionId: session, Seq: id, HoldId: id}
	if len(locks) > 1 {
		for _, l := range locks {
			e.Locks = append(e.Locks, l.Name)
		}
	}
	if what == wire.Event_GRANTED {
		s.token++
		e.Token = s.token
	}
	s.tell(&wire.Acquire{Locks: locks}, e)
	return id
}

// grant returns a grant from the queue.
func (s *scene) grant(session, id uint64, lock string) *wire.Event {
	s.token++
	return &wire.Event{Type: wire.Event_GRANTED, Waited: true, Lock: lock, SessionId: session, Seq: id, HoldId: id, Token: s.token}
}

// cache adds a session's acquire of a cached hold of x, which is granted with that many tokens.
func (s *scene) cache(session uint64, tokens uint32) uint64 {
	id := s.revision + 1
	s.token++
	e := &wire.Event{Type: granted, Revision: id, Lock: "x", SessionId: session, Seq: id, HoldId: id, Token: s.token, Tokens: tokens}
	op := &wire.AcquireCached{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{lock("x")}}, Tokens: rangeSize}
	s.revision++
	s.rules.step(step{revision: id, cmd: &wire.Command{Op: &wire.Command_AcquireCached{AcquireCached: op}}, events: []*wire.Event{e}})
	return id
}

// waits returns the event that a session's acquire of x is queued.
func waits(session, id uint64) *wire.Event {
	return &wire.Event{Type: queued, Lock: "x", SessionId: session, Seq: id, HoldId: id}
}

func released(id uint64, lock string) *wire.Event {
	return &wire.Event{Type: wire.Event_RELEASED, Lock: lock, HoldId: id}
}

func lock(name string) *wire.LockRequest { return &wire.LockRequest{Name: name} }
func shared(name string) *wire.LockRequest {
	return &wire.LockRequest{Name: name, Mode: wire.Mode_SHARED}
}
func permits(name string, n uint64) *wire.LockRequest {
	return &wire.LockRequest{Name: name, Permits: n, Limit: 3}
}

const granted, queued = wire.Event_GRANTED, wire.Event_QUEUED

// stories keep the rules, or break one.
var stories = map[string]struct {
	fault string
	tell  func(s *scene)
}{
	"one after the other": {"", func(s *scene) {
		a, b := s.ask(1, granted, lock("x")), s.ask(2, queued, lock("x"))
		s.tell(nil, released(a, "x"), s.grant(2, b, "x"))
	}},
	"readers together":         {"", func(s *scene) { s.ask(1, granted, shared("x")); s.ask(2, granted, shared("x")) }},
	"permits":                  {"", func(s *scene) { s.ask(1, granted, permits("s", 2)); s.ask(2, granted, permits("s", 1)) }},
	"two writers":              {"have", func(s *scene) { s.ask(1, granted, lock("x")); s.ask(2, granted, lock("x")) }},
	"a reader beside a writer": {"have", func(s *scene) { s.ask(1, granted, lock("x")); s.ask(2, granted, shared("x")) }},
	"too many permits":         {"have", func(s *scene) { s.ask(1, granted, permits("s", 2)); s.ask(2, granted, permits("s", 2)) }},
	"several, half granted": {"have", func(s *scene) {
		s.ask(1, granted, lock("y"))
		s.ask(2, granted, lock("x"), lock("y"))
	}},
	"a falling token": {"token", func(s *scene) { s.ask(1, granted, lock("x")); s.token -= 2; s.ask(2, granted, lock("y")) }},
	"the same token":  {"token", func(s *scene) { s.ask(1, granted, lock("x")); s.token--; s.ask(2, granted, lock("y")) }},
	"a session that is over": {"is over", func(s *scene) {
		s.tell(nil, &wire.Event{Type: wire.Event_SESSION_EXPIRED, SessionId: 1})
		s.ask(1, granted, lock("x"))
	}},
	"granted twice": {"second time", func(s *scene) {
		a, b := s.ask(1, granted, lock("x")), s.ask(2, queued, lock("x"))
		s.tell(nil, released(a, "x"), s.grant(2, b, "x"))
		s.tell(nil, released(b, "x"), s.grant(2, b, "x"))
	}},
	"last in, first out": {"out of turn", func(s *scene) {
		a, _, c := s.ask(1, granted, lock("x")), s.ask(2, queued, lock("x")), s.ask(3, queued, lock("x"))
		s.tell(nil, released(a, "x"), s.grant(3, c, "x"))
	}},
	"past the queue": {"out of turn", func(s *scene) {
		s.ask(1, granted, shared("x"))
		s.ask(2, queued, lock("x"))
		s.ask(3, granted, shared("x"))
	}},
	"small past large": {"out of turn", func(s *scene) {
		s.ask(1, granted, permits("s", 2))
		s.ask(2, queued, permits("s", 2))
		s.ask(3, granted, permits("s", 1))
	}},
	"passed in one of two queues": {"out of turn", func(s *scene) {
		s.ask(1, granted, lock("x"))
		s.ask(2, queued, lock("x"), lock("y"))
		s.ask(3, granted, lock("y"))
	}},
	"a lost wake-up": {"left waiting", func(s *scene) {
		a := s.ask(1, granted, lock("x"))
		s.ask(2, queued, lock("x"))
		s.tell(nil, released(a, "x"))
	}},
	"the other queue forgotten": {"left waiting", func(s *scene) {
		s.ask(1, granted, lock("x"))
		b := s.ask(2, queued, lock("x"), lock("y"))
		s.ask(3, queued, lock("y"))
		s.tell(nil, &wire.Event{Type: wire.Event_CANCELLED, Lock: "x", Locks: []string{"x", "y"}, HoldId: b})
	}},
	"freed by another": {"does not have", func(s *scene) {
		s.ask(1, granted, lock("x"))
		s.tell(nil, released(s.ask(2, queued, lock("x")), "x"))
	}},
	"granted past a delay": {"have", func(s *scene) {
		a := s.ask(1, granted, lock("x"))
		s.tell(nil, &wire.Event{Type: wire.Event_EXPIRED, Lock: "x", HoldId: a}, &wire.Event{Type: wire.Event_DELAYED, Lock: "x", HoldId: a})
		s.ask(2, granted, lock("x"))
	}},
	"upgraded beside a reader": {"upgraded while", func(s *scene) {
		a := s.ask(1, granted, shared("x"))
		s.ask(2, granted, shared("x"))
		s.tell(nil, &wire.Event{Type: granted, Upgrade: true, Lock: "x", SessionId: 1, Seq: 9, HoldId: a, Token: 900})
	}},
	"let in before an upgrade": {"have", func(s *scene) {
		a := s.ask(1, granted, shared("x"))
		s.ask(2, granted, shared("x"))
		s.tell(nil, &wire.Event{Type: queued, Upgrade: true, Lock: "x", HoldId: a})
		s.ask(3, granted, shared("x"))
	}},
	"cached and recalled": {"", func(s *scene) {
		a := s.cache(1, rangeSize)
		s.tell(&wire.Acquire{Locks: []*wire.LockRequest{lock("x")}}, waits(2, s.revision+1), &wire.Event{Type: wire.Event_WANTED, Lock: "x", HoldId: a})
		s.token += rangeSize - 1
		s.ask(3, granted, lock("z"))
	}},
	"cached and not recalled": {"is not recalled", func(s *scene) {
		s.cache(1, rangeSize)
		s.ask(2, queued, lock("x"))
	}},
	"a token of a range":           {"token", func(s *scene) { s.cache(1, rangeSize); s.ask(2, granted, lock("y")) }},
	"another range than requested": {"tokens, requested were", func(s *scene) { s.cache(1, rangeSize+1) }},
	"granted to nobody":            {"nobody asked", func(s *scene) { s.tell(nil, s.grant(1, 77, "x")) }},
}

// TestRules plays stories that keep the rules and some that break one.
func TestRules(t *testing.T) {
	for what, c := range stories {
		t.Run(what, func(t *testing.T) {
			s := newScene()
			c.tell(s)
			found := strings.Join(s.rules.faults, "\n")
			if c.fault == "" && found != "" || !strings.Contains(found, c.fault) {
				t.Errorf("faults %q, want %q", found, c.fault)
			}
		})
	}
}
