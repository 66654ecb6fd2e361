package judge

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/test/model"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// rules checks only the events, in the order of the log: tokens increase, grants go to live sessions and once
// per request, holders of a lock are compatible, no request overtakes an earlier one, and no grantable
// request is left waiting.
type rules struct {
	faults  []string
	token   uint64
	live    map[uint64]bool
	granted map[request]bool
	claims  map[uint64]*claimState
	queues  map[string][]uint64        // waiters by lock
	taken   map[string]map[uint64]bool // claims that hold a lock or keep it closed
	limits  map[string]uint64
}

// claimState is a claim as described by its events.
type claimState struct {
	id, session uint64
	locks       []*wire.LockRequest
	unfair      bool
	rising      bool // a shared hold of a single lock that waits for its upgrade
	// tokens is the number of tokens of a cached hold, which must be recalled while others wait.
	tokens   uint32
	recalled bool
}

func newRules() *rules {
	return &rules{
		live: map[uint64]bool{}, granted: map[request]bool{}, claims: map[uint64]*claimState{},
		queues: map[string][]uint64{}, taken: map[string]map[uint64]bool{}, limits: map[string]uint64{},
	}
}

// load starts from a state instead of an empty one.
func (u *rules) load(d *model.Model) {
	u.token = d.Token
	for _, s := range d.Live {
		u.live[s.ID] = true
	}
	for name, l := range d.Locks {
		u.limits[name] = l.Limit
	}
	for _, c := range d.Claims {
		s := &claimState{id: c.ID, session: c.Session, unfair: d.Locks[c.Locks[0].Name].Order == wire.Order_UNFAIR, rising: c.Upgrading(), tokens: c.Tokens, recalled: c.Recalled()}
		for _, l := range c.Locks {
			s.locks = append(s.locks, proto.CloneOf(l))
		}
		u.claims[c.ID] = s
		if c.Queued() {
			u.enqueue(s)
		} else {
			u.take(s)
		}
	}
}

func (u *rules) fault(e *wire.Event, format string, args ...any) {
	u.faults = append(u.faults, fmt.Sprintf("revision %d, %v of %q by %d: ", e.Revision, e.Type, e.Lock, e.HoldId)+fmt.Sprintf(format, args...))
}

// step processes one command.
func (u *rules) step(s step) {
	for _, e := range s.events {
		u.record(s.cmd, e)
		u.event(e)
	}
	for _, e := range s.events {
		for _, name := range namesOf(e) {
			if queue := u.queues[name]; len(queue) > 0 && u.free(u.claims[queue[0]]) {
				u.fault(e, "%d could have %q and is left waiting", queue[0], name)
			}
			for id := range u.taken[name] {
				if c := u.claims[id]; len(u.queues[name]) > 0 && c.tokens > 0 && !c.recalled {
					u.fault(e, "%d is cached, others wait for %q, and it is not recalled", id, name)
				}
			}
		}
	}
}

// namesOf returns all locks that an event is about.
func namesOf(e *wire.Event) []string {
	if len(e.Locks) > 0 || e.Lock == "" {
		return e.Locks
	}
	return []string{e.Lock}
}

// record records a new claim.
func (u *rules) record(cmd *wire.Command, e *wire.Event) {
	op := acquireOf(cmd)
	switch body := cmd.Op.(type) {
	case *wire.Command_OpenLease:
		op = body.OpenLease.GetAcquire()
	case *wire.Command_ChangeKeys:
		op = &wire.Acquire{Locks: []*wire.LockRequest{{Name: e.Lock}}}
	}
	if e.HoldId != e.Revision || u.claims[e.HoldId] != nil || op == nil {
		return
	}
	s := &claimState{id: e.HoldId, session: e.SessionId, unfair: op.Order == wire.Order_UNFAIR, tokens: cmd.GetAcquireCached().GetTokens()}
	for _, l := range op.Locks {
		l = proto.CloneOf(l)
		switch {
		case l.Limit > 0:
			l.Mode, l.Permits = wire.Mode_PERMITS, max(1, l.Permits)
			u.limits[l.Name] = l.Limit
		case l.Mode == wire.Mode_MODE_UNSPECIFIED:
			l.Mode = wire.Mode_EXCLUSIVE
		}
		s.locks = append(s.locks, l)
	}
	u.claims[s.id] = s
}

func (u *rules) event(e *wire.Event) {
	switch e.Type {
	case wire.Event_SESSION_OPENED:
		u.live[e.SessionId] = true
		return
	case wire.Event_SESSION_CLOSED, wire.Event_SESSION_EXPIRED:
		delete(u.live, e.SessionId)
		return
	case wire.Event_RESIZED:
		u.limits[e.Lock] = e.Limit
		return
	}
	if e.HoldId == 0 {
		return
	}
	c := u.claims[e.HoldId]
	if c == nil {
		u.fault(e, "nobody asked for it")
		return
	}
	switch e.Type {
	case wire.Event_GRANTED:
		u.grant(c, e)
	case wire.Event_QUEUED:
		if c.rising = e.Upgrade; !e.Upgrade {
			u.enqueue(c)
		}
	case wire.Event_CANCELLED:
		if c.rising = false; !e.Upgrade {
			u.dequeue(c)
		}
	case wire.Event_RELEASED, wire.Event_EXPIRED, wire.Event_FORCED, wire.Event_DELAY_ENDED:
		u.leave(c, e)
	case wire.Event_DELAYED:
		u.take(c)
	case wire.Event_WANTED:
		c.recalled = true
	case wire.Event_DOWNGRADED:
		c.locks[0].Mode = wire.Mode_SHARED
	}
}

func (u *rules) enqueue(c *claimState) {
	for _, l := range c.locks {
		u.queues[l.Name] = append(u.queues[l.Name], c.id)
	}
}

func (u *rules) dequeue(c *claimState) {
	for _, l := range c.locks {
		u.queues[l.Name] = slices.DeleteFunc(u.queues[l.Name], func(id uint64) bool { return id == c.id })
	}
}

func (u *rules) take(c *claimState) {
	for _, l := range c.locks {
		if u.taken[l.Name] == nil {
			u.taken[l.Name] = map[uint64]bool{}
		}
		u.taken[l.Name][c.id] = true
	}
}

func (u *rules) leave(c *claimState, e *wire.Event) {
	c.tokens = 0
	for _, l := range c.locks {
		if e.Partial && l.Name != e.Lock {
			continue
		}
		if !u.taken[l.Name][c.id] {
			u.fault(e, "it does not have %q", l.Name)
		}
		delete(u.taken[l.Name], c.id)
	}
	if e.Partial {
		c.locks = slices.DeleteFunc(c.locks, func(l *wire.LockRequest) bool { return l.Name == e.Lock })
	}
}

// grant checks one grant and records it.
func (u *rules) grant(c *claimState, e *wire.Event) {
	key := request{e.SessionId, e.Seq}
	switch {
	case e.Token <= u.token:
		u.fault(e, "token %d after %d", e.Token, u.token)
	case !u.live[e.SessionId]:
		u.fault(e, "session %d is over", e.SessionId)
	case e.Tokens != c.tokens:
		u.fault(e, "%d tokens, requested were %d", e.Tokens, c.tokens)
	case u.granted[key]:
		u.fault(e, "request %v is granted for the second time", key)
	}
	u.token, u.granted[key] = max(u.token, e.Token+uint64(max(1, e.Tokens))-1), true
	if e.Upgrade {
		u.raise(c, e)
		return
	}
	for _, l := range c.locks {
		queue := u.queues[l.Name]
		switch {
		case c.unfair && e.Waited == slices.Contains(queue, c.id):
		case e.Waited && (len(queue) == 0 || queue[0] != c.id), !e.Waited && len(queue) > 0:
			u.fault(e, "out of turn, %v wait for %q", queue, l.Name)
		}
		if !u.room(l, c.id) {
			u.fault(e, "%v have %q", u.taken[l.Name], l.Name)
		}
	}
	u.dequeue(c)
	u.take(c)
}

func (u *rules) raise(c *claimState, e *wire.Event) {
	if others := len(u.taken[e.Lock]); others != 1 || !u.taken[e.Lock][c.id] {
		u.fault(e, "it is upgraded while %v have it", u.taken[e.Lock])
	}
	c.rising, c.locks[0].Mode = false, wire.Mode_EXCLUSIVE
}

// room reports whether the other claims on a lock leave room for the request.
func (u *rules) room(want *wire.LockRequest, who uint64) bool {
	sum := want.Permits
	for id := range u.taken[want.Name] {
		if id == who {
			return false
		}
		for _, l := range u.claims[id].locks {
			if l.Name != want.Name {
				continue
			}
			if l.Mode == wire.Mode_EXCLUSIVE || want.Mode == wire.Mode_EXCLUSIVE || u.claims[id].rising {
				return false
			}
			sum += l.Permits
		}
	}
	return want.Mode != wire.Mode_PERMITS || sum <= u.limits[want.Name]
}

// free reports whether a waiting claim could be granted.
func (u *rules) free(c *claimState) bool {
	for _, l := range c.locks {
		if u.queues[l.Name][0] != c.id && !c.unfair || !u.room(l, c.id) {
			return false
		}
	}
	return true
}
