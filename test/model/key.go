package model

import (
	"bytes"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// mostAnswers is how many answers to the requests of a node's Redis port are remembered, mostOfAll how many of all nodes.
const (
	mostAnswers = 8192
	mostOfAll   = 10240
)

// mostDeleted is how many holds one request ends.
const mostDeleted = 1024

// port is what is remembered of the Redis port of a node.
type port struct {
	// boot is its latest start. It has the answers to all requests below done.
	boot, done uint64
	answers    map[uint64]*portAnswer
}

// portAnswer is a remembered answer, and the digest of what was asked.
type portAnswer struct {
	asked uint64
	said  *wire.Result
}

// changeKeys answers a request of a Redis port, and remembers the answer.
func (d *Model) changeKeys(op *wire.ChangeKeys) *wire.Result {
	if d.memberAt(op.NodeId) < 0 {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	known := d.ports[op.NodeId]
	var before *portAnswer
	if known != nil && known.boot == op.Boot {
		before = known.answers[op.Seq]
	}
	again := before != nil && before.asked == d.digestOfKeys(op)
	if !again && d.takes(op) {
		return says(wire.Status_PERMISSION_DENIED)
	}
	if known != nil && (op.Boot < known.boot || op.Boot == known.boot && op.Seq < known.done) {
		return says(wire.Status_STALE)
	}
	now := &port{boot: op.Boot, done: op.AckedBelow, answers: map[uint64]*portAnswer{}}
	if known != nil && known.boot == op.Boot {
		now.done = max(known.done, op.AckedBelow)
		now.answers = maps.Clone(known.answers)
		maps.DeleteFunc(now.answers, func(seq uint64, _ *portAnswer) bool { return seq < now.done })
	}
	d.ports[op.NodeId] = now
	if again {
		return d.answerAgain(before.said)
	}
	if before != nil {
		return says(wire.Status_INVALID_ARGUMENT)
	}
	all := 0
	for _, p := range d.ports {
		all += len(p.answers)
	}
	if len(now.answers) >= mostAnswers || all >= mostOfAll {
		return says(wire.Status_RESOURCE_EXHAUSTED)
	}
	answer, undone := d.onKeys(op)
	if undone {
		// All of it is undone, also what the request has acknowledged.
		if delete(d.ports, op.NodeId); known != nil {
			d.ports[op.NodeId] = known
		}
		return answer
	}
	if slices.Contains(lasting, answer.Status) {
		now.answers[op.Seq] = &portAnswer{d.digestOfKeys(op), &wire.Result{Status: answer.Status, HoldId: answer.HoldId, Token: answer.Token, Count: answer.Count}}
	}
	return answer
}

// answerAgain repeats an answer, unless the holds that it is about have ended.
func (d *Model) answerAgain(a *wire.Result) *wire.Result {
	about := []uint64{a.HoldId}
	for i := uint64(1); a.Status == wire.Status_GRANTED && i < uint64(a.Count); i++ {
		about = append(about, a.HoldId+i)
	}
	for _, id := range about {
		switch c := d.Claim(id); {
		case id == 0, c != nil && c.Holds():
		case a.Status == wire.Status_GRANTED:
			return says(wire.Status_NOT_ACQUIRED)
		default:
			return says(wire.Status_NOT_HELD)
		}
	}
	return proto.CloneOf(a)
}

// lasting are the answers to requests of Redis ports that are remembered.
var lasting = []wire.Status_Code{
	wire.Status_GRANTED, wire.Status_OK, wire.Status_NOT_ACQUIRED, wire.Status_NOT_HELD, wire.Status_NOT_FOUND,
}

// takes reports whether a request would take keys without the right.
func (d *Model) takes(op *wire.ChangeKeys) bool {
	if op.Action == wire.ChangeKeys_RELEASE || op.Action == wire.ChangeKeys_RELEASE_ALL || op.Action == wire.ChangeKeys_DELETE {
		return false
	}
	return slices.ContainsFunc(op.Names, func(name string) bool { return !d.May(d.who(), wire.Verb_LOCK, name) })
}

func (d *Model) onKeys(op *wire.ChangeKeys) (answer *wire.Result, undone bool) {
	if op.Version != nil && !d.isAt(op.Names[0], op.Version) {
		return says(wire.Status_NOT_HELD), false
	}
	switch {
	case op.Action == wire.ChangeKeys_ACQUIRE, op.Action == wire.ChangeKeys_ACQUIRE_OR_EXTEND && d.Locks[op.Names[0]] == nil:
		return d.takeKeys(op)
	case op.Action == wire.ChangeKeys_ACQUIRE_OR_EXTEND, op.Action == wire.ChangeKeys_EXTEND:
		return d.extendKeys(op)
	case op.Action == wire.ChangeKeys_DELETE:
		return d.deleteKeys(op)
	}
	return d.giveKeys(op), false
}

// KeyOf returns the exclusive hold on a lock and its session; nil if there is none.
func (d *Model) KeyOf(name string) (*Claim, *Session) {
	for _, c := range d.holders(name) {
		if c.part(name).Mode == wire.Mode_EXCLUSIVE {
			return c, d.Session(c.Session)
		}
	}
	return nil, nil
}

// isAt reports whether a key is in that version, as far as the caller may know.
func (d *Model) isAt(name string, v *wire.KeyVersion) bool {
	c, s := d.KeyOf(name)
	switch {
	case d.Locks[name] == nil, d.hidden(name):
		return v.HoldId == 0 && v.Generation == 0
	case c == nil:
		return false
	case !s.ByValue:
		return v.HoldId == c.ID && v.Generation == 0
	}
	return v.HoldId == c.ID && v.Generation == s.Generation
}

// hidden reports whether the caller may not know whether a lock is in use.
func (d *Model) hidden(name string) bool {
	_, s := d.KeyOf(name)
	own := s != nil && s.Identity == d.who()
	return !own && !d.May(d.who(), wire.Verb_READ, name) && !d.May(d.who(), wire.Verb_LOCK, name)
}

// ownKeys returns those keys of a request that are the caller's own, and the refusal for the first that is not.
func (d *Model) ownKeys(op *wire.ChangeKeys) (own []*Claim, refusal *wire.Result) {
	for _, name := range op.Names {
		c, s := d.KeyOf(name)
		if c != nil && s.ByValue && s.Identity == d.who() && provedBy(op, s.Value) {
			own = append(own, c)
			continue
		}
		why := wire.Status_NOT_HELD
		if d.Locks[name] == nil || d.hidden(name) {
			why = wire.Status_NOT_FOUND
		}
		if refusal == nil {
			refusal = says(why)
		}
	}
	return own, refusal
}

// provedBy reports whether a request proves the ownership of a key with that value.
func provedBy(op *wire.ChangeKeys, value string) bool {
	n := int(op.CompareBytes)
	switch {
	case len(op.Value) == 0:
		return true
	case n == 0:
		return string(op.Value) == value
	}
	return len(value) >= n && bytes.HasPrefix(op.Value, []byte(value)[:n])
}

// takeKeys acquires keys, each by a lease of its own.
func (d *Model) takeKeys(op *wire.ChangeKeys) (answer *wire.Result, undone bool) {
	if d.Suspended != 0 {
		return says(wire.Status_UNAVAILABLE), false
	}
	for _, name := range op.Names {
		if d.Locks[name] != nil {
			return says(wire.Status_NOT_ACQUIRED), false
		}
	}
	revision, token, opened := d.Revision, d.Token, d.Opened
	var taken []*Claim
	for i, name := range op.Names {
		d.Revision = revision + uint64(i)
		c := d.takeKey(op, name)
		if c != nil {
			taken = append(taken, c)
			continue
		}
		for _, c := range taken {
			s := d.Session(c.Session)
			d.drop(c)
			d.leave(s)
		}
		d.Revision, d.Token, d.Opened, d.News = revision, token, opened, nil
		return says(wire.Status_RESOURCE_EXHAUSTED), true
	}
	answer = taken[0].grant()
	answer.Count = uint32(len(taken))
	return answer, false
}

// takeKey acquires a key that is free; nil if there is no room.
func (d *Model) takeKey(op *wire.ChangeKeys, name string) *Claim {
	if len(d.Live) >= int(d.Limits.MaxSessions) || !d.roomForSession(d.who()) {
		return nil
	}
	s := d.begin(nil, op.TtlMs, op.Client)
	s.Leased, s.ByValue, s.Value = true, true, string(op.Value)
	if !d.affords(s, 0, roomToShrink) {
		d.leave(s)
		return nil
	}
	d.tellOpened(s)
	if d.acquire(s, 1, &wire.Acquire{Locks: []*wire.LockRequest{{Name: name}}}).Status != wire.Status_GRANTED {
		d.leave(s)
		return nil
	}
	return d.Of(s.ID)[0]
}

// extendKeys restarts the TTL of keys, and replaces the values that were compared in part.
func (d *Model) extendKeys(op *wire.ChangeKeys) (answer *wire.Result, undone bool) {
	own, refusal := d.ownKeys(op)
	if refusal != nil {
		return refusal, false
	}
	var before []Session
	for _, c := range own {
		s := d.Session(c.Session)
		before = append(before, *s)
		more := textWeight(len(op.Value)) - textWeight(len(s.Value))
		if op.CompareBytes > 0 && more > 0 && !d.affords(s, more, roomToShrink) {
			for _, was := range before {
				*d.Session(was.ID) = was
			}
			d.News = nil
			return says(wire.Status_RESOURCE_EXHAUSTED), true
		}
		if op.CompareBytes > 0 {
			s.Value = string(op.Value)
		}
		d.startTTL(s, op.TtlMs)
	}
	return &wire.Result{Status: wire.Status_OK, HoldId: own[0].ID, Token: own[0].Token, Count: uint32(len(own))}, false
}

// giveKeys releases the caller's own keys.
func (d *Model) giveKeys(op *wire.ChangeKeys) *wire.Result {
	own, refusal := d.ownKeys(op)
	if len(own) == 0 || refusal != nil && op.Action == wire.ChangeKeys_RELEASE_ALL {
		return refusal
	}
	for _, c := range own {
		d.giveKey(c)
	}
	d.grantReady()
	return &wire.Result{Status: wire.Status_OK, Count: uint32(len(own))}
}

func (d *Model) giveKey(c *Claim) {
	d.drop(c)
	d.tellHold(wire.Event_RELEASED, c)
	d.endLease(c)
}

// deleteKeys ends the holds on keys.
func (d *Model) deleteKeys(op *wire.ChangeKeys) (answer *wire.Result, undone bool) {
	doomed := map[uint64]bool{}
	for _, name := range op.Names {
		for _, c := range d.holders(name) {
			switch d.deletes(op, c) {
			case wire.Status_PERMISSION_DENIED:
				return says(wire.Status_PERMISSION_DENIED), true
			case wire.Status_OK:
				doomed[c.ID] = true
			}
		}
		if len(doomed) > mostDeleted {
			return says(wire.Status_FAILED_PRECONDITION), true
		}
	}
	const reason = "DEL through the Redis port"
	count := uint32(0)
	for _, name := range op.Names {
		ended := uint32(0)
		for _, c := range d.holders(name) {
			switch s := d.Session(c.Session); {
			case s.ByValue && s.Identity == d.who():
				d.giveKey(c)
			case d.deletes(op, c) == wire.Status_OK:
				d.record(wire.AuditRecord_FORCE_RELEASE, &wire.ForceRelease{Reason: reason}, d.about(c))
				d.endByForce(c, wire.Event_FORCED, reason)
			default:
				continue
			}
			ended = 1
		}
		count += ended
	}
	d.grantReady()
	return &wire.Result{Status: wire.Status_OK, Count: count}, false
}

// deletes returns OK if the caller may end a hold, and NOT_HELD if it may not even know of it.
func (d *Model) deletes(op *wire.ChangeKeys, c *Claim) wire.Status_Code {
	s := d.Session(c.Session)
	switch {
	case s.ByValue && s.Identity == d.who():
		return wire.Status_OK
	case d.Policy == nil && op.Force:
		return wire.Status_OK
	case d.Policy != nil && d.mayOn(d.who(), wire.Verb_OPERATE, c):
		return wire.Status_OK
	case d.Policy != nil && !d.noticed(c):
		return wire.Status_NOT_HELD
	}
	return wire.Status_PERMISSION_DENIED
}

// recordRemaining notes what remains of the TTLs of keys.
func (d *Model) recordRemaining(op *wire.RecordRemaining) *wire.Result {
	if op.Term != d.Term {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	for _, one := range op.Keys {
		if s := d.Session(one.SessionId); s != nil && s.ByValue && one.Generation == s.Generation && one.RemainingMs <= s.TTL {
			s.Remaining = one.RemainingMs
		}
	}
	return says(wire.Status_OK)
}

// validKeys reports whether a request of a Redis port may be executed at all, apart from the lengths in the limits.
func (d *Model) validKeys(op *wire.ChangeKeys) bool {
	one := op.GetVersion() != nil || op.GetAction() == wire.ChangeKeys_ACQUIRE_OR_EXTEND
	switch {
	case op.GetNodeId() == "", !readable(op.NodeId, 512), op.Boot == 0, op.Seq == 0, op.Seq >= 1<<63, op.AckedBelow > op.Seq:
		return false
	case op.Action < wire.ChangeKeys_ACQUIRE || op.Action > wire.ChangeKeys_DELETE, len(op.Value) < int(op.CompareBytes):
		return false
	case len(op.Names) == 0, len(op.Names) > 64, one && len(op.Names) > 1:
		return false
	}
	seen := map[string]bool{}
	for _, name := range op.Names {
		if seen[name] || !validName(name) {
			return false
		}
		seen[name] = true
	}
	switch op.Action {
	case wire.ChangeKeys_ACQUIRE, wire.ChangeKeys_ACQUIRE_OR_EXTEND:
		return len(op.Value) > 0 && d.validKeyTTL(op.TtlMs) && validClient(op.Client)
	case wire.ChangeKeys_EXTEND:
		return d.validKeyTTL(op.TtlMs)
	}
	return true
}

func (d *Model) validKeyTTL(ttl uint32) bool {
	return ttl >= d.Limits.GetMinKeyTtlMs() && ttl <= d.Limits.GetMaxKeyTtlMs()
}

// validKeyLease reports whether an acquire may wait for a key.
func (d *Model) validKeyLease(op *wire.OpenLease) bool {
	a := op.GetAcquire()
	if !validAcquire(a) || len(a.Locks) != 1 || plain(a.Locks[0]).Mode != wire.Mode_EXCLUSIVE || a.Order == wire.Order_UNFAIR {
		return false
	}
	options := a.Reentrant || a.Notify || a.AllowDeadlock || a.MaxHoldMs > 0 || a.LockDelayMs > 0 || len(a.Value) > 0
	return !options && validHash(op.SecretHash) && d.validKeyTTL(op.TtlMs) && validClient(op.Client)
}
