package fsm

import (
	"crypto/sha256"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// model is the lock service as one would explain it on paper: a list of all that
// somebody wants or has, in the order in which they asked. It shares no code and no
// shape with the machine: no queue, no table, no counts. Whoever asks who holds a
// lock, or who is next, reads the whole list; answers are never forgotten, only no
// longer shown.
type model struct {
	limits          *wire.Settings
	revision, token uint64
	term            uint64
	leader, lineage string
	opened, audited uint64
	live            []*modelSession
	claims          []*modelClaim // by id
	locks           map[string]*modelLock
	answers         []*modelAnswer
	audit           []*wire.AuditRecord
	news            []*wire.Event
	// hint names the claims in the order in which the machine granted them. Where
	// several may be granted the model takes its word for the order, and for nothing
	// else.
	hint []uint64
	// draws counts grants of unfair locks that several waited for.
	draws int
	// trap is what still waits once a refused request stands in the queues, refused is
	// that request.
	trap    *model
	refused uint64
	// allowed says that somebody waits for himself, as he was allowed to.
	allowed bool
}

type modelSession struct {
	id, generation, mark uint64
	hash                 string
	ttl                  uint32
	client               *wire.ClientInfo
	leased               bool
}

// modelLock is what a lock is as long as anybody has to do with it.
type modelLock struct {
	order wire.Order
	limit uint64
}

// modelClaim waits while token is 0, holds until it is over and keeps locks closed
// after that.
type modelClaim struct {
	id, session, owner, seq uint64
	locks                   []*wire.LockRequest
	value                   []byte
	waitMs                  uint32
	forever, allow          bool
	waits                   uint64 // generation of its wait's deadline
	token, granted          uint64
	count                   uint32
	notify, wanted          bool
	maxHold                 uint32
	holds                   uint64 // generation of the hold's deadline
	delay                   uint32
	revoked                 *wire.Revocation
	upgrade                 *modelUpgrade
	over                    bool
}

// modelUpgrade is a hold's wish to be alone.
type modelUpgrade struct {
	seq, generation uint64
	waitMs          uint32
	forever         bool
}

// modelAnswer is what a request came to; said changes when a wait ends.
type modelAnswer struct {
	session, seq  uint64
	said          *wire.Result
	waited, acked bool
}

// modelWall is what every entry of these tests says that the time is.
const modelWall = 5

// newModel is a cluster after its bootstrap, which was the first command.
func newModel(limits *wire.Settings, floor uint64) *model {
	return &model{limits: limits, revision: 1, token: floor, lineage: walkLineage, locks: map[string]*modelLock{}}
}

func says(status wire.Status_Code) *wire.Result { return &wire.Result{Status: status} }

// apply runs a command. granted names the claims that the machine granted from
// queues, in order.
func (d *model) apply(cmd *wire.Command, granted ...uint64) *wire.Result {
	d.revision++
	d.news, d.hint = nil, granted
	answer := d.run(cmd)
	d.clean()
	answer.Seq = cmd.Seq
	if answer.Revision == 0 {
		answer.Revision = d.revision
	}
	return answer
}

func (d *model) run(cmd *wire.Command) *wire.Result {
	switch op := cmd.Op.(type) {
	case nil:
		return says(wire.Status_INVALID_ARGUMENT)
	case *wire.Command_BeginTerm:
		return d.beginTerm(op.BeginTerm)
	case *wire.Command_OpenSession:
		return d.open(op.OpenSession)
	case *wire.Command_OpenLease:
		return d.openLease(op.OpenLease)
	case *wire.Command_ExtendLease:
		return d.extendLease(op.ExtendLease)
	case *wire.Command_ReleaseLease:
		return d.releaseLease(op.ReleaseLease)
	case *wire.Command_ExpireSession:
		return d.expire(op.ExpireSession)
	case *wire.Command_TimeoutWait:
		return d.timeout(op.TimeoutWait)
	case *wire.Command_ExpireHold:
		return d.expireHold(op.ExpireHold)
	case *wire.Command_EndDelay:
		return d.endDelay(op.EndDelay)
	case *wire.Command_ForceRelease:
		return d.force(op.ForceRelease)
	case *wire.Command_Revoke:
		return d.revoke(op.Revoke)
	case *wire.Command_SkipDelay:
		return d.skipDelay(op.SkipDelay)
	case *wire.Command_Resize:
		return d.resize(op.Resize)
	case *wire.Command_RestoreBackup:
		return d.restoreBackup(op.RestoreBackup)
	}
	return d.ofSession(cmd)
}

func (d *model) ofSession(cmd *wire.Command) *wire.Result {
	s := d.find(cmd.SessionId)
	if s == nil {
		return says(wire.Status_SESSION_LOST)
	}
	if op, ok := cmd.Op.(*wire.Command_AttachSession); ok && string(op.AttachSession.SecretHash) != s.hash {
		return says(wire.Status_PERMISSION_DENIED)
	}
	if s.leased {
		return says(wire.Status_INVALID_ARGUMENT)
	}
	d.ack(s, cmd)
	switch op := cmd.Op.(type) {
	case *wire.Command_AttachSession:
		return d.attach(s, op.AttachSession.Address)
	case *wire.Command_Acknowledge:
		return says(wire.Status_OK)
	case *wire.Command_CloseSession:
		d.end(s, wire.Event_SESSION_CLOSED)
		return says(wire.Status_OK)
	}
	return d.request(s, cmd)
}

func (d *model) beginTerm(op *wire.BeginTerm) *wire.Result {
	if op.Term == 0 {
		return says(wire.Status_INVALID_ARGUMENT)
	}
	if op.Term < d.term || op.Term == d.term && op.LeaderId != d.leader {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	d.term, d.leader = op.Term, op.LeaderId
	return says(wire.Status_OK)
}

func (d *model) find(id uint64) *modelSession {
	for _, s := range d.live {
		if s.id == id {
			return s
		}
	}
	return nil
}

func (d *model) byHash(hash []byte) *modelSession {
	for _, s := range d.live {
		if s.hash == string(hash) {
			return s
		}
	}
	return nil
}

func (d *model) open(op *wire.OpenSession) *wire.Result {
	if len(op.SecretHash) != sha256.Size {
		return says(wire.Status_INVALID_ARGUMENT)
	}
	if s := d.byHash(op.SecretHash); s != nil {
		if s.leased {
			return says(wire.Status_INVALID_ARGUMENT)
		}
		return d.attach(s, op.Client.GetAddress())
	}
	if refusal := d.mayOpen(op.TtlMs, op.Client); refusal != nil {
		return refusal
	}
	s := d.begin(op.SecretHash, op.TtlMs, op.Client)
	d.tell(&wire.Event{Type: wire.Event_SESSION_OPENED, SessionId: s.id, Generation: 1, TtlMs: s.ttl})
	return &wire.Result{Status: wire.Status_OK, Session: d.resume(s)}
}

func (d *model) mayOpen(ttl uint32, client *wire.ClientInfo) *wire.Result {
	switch {
	case ttl != 0 && (ttl < d.limits.MinTtlMs || ttl > d.limits.MaxTtlMs):
		return says(wire.Status_INVALID_ARGUMENT)
	case proto.Size(client) > int(d.limits.MaxClientInfoBytes), len(d.live) >= int(d.limits.MaxSessions):
		return says(wire.Status_RESOURCE_EXHAUSTED)
	}
	return nil
}

func (d *model) begin(hash []byte, ttl uint32, client *wire.ClientInfo) *modelSession {
	if ttl == 0 {
		ttl = d.limits.DefaultTtlMs
	}
	d.opened++
	s := &modelSession{id: d.opened, generation: 1, hash: string(hash), ttl: ttl, client: client}
	d.live = append(d.live, s)
	return s
}

func (d *model) attach(s *modelSession, address string) *wire.Result {
	s.generation++
	if address != "" {
		client := &wire.ClientInfo{}
		if s.client != nil {
			client = proto.CloneOf(s.client)
		}
		client.Address, s.client = address, client
	}
	d.tell(&wire.Event{Type: wire.Event_SESSION_ATTACHED, SessionId: s.id, Generation: s.generation, TtlMs: s.ttl})
	return &wire.Result{Status: wire.Status_OK, Session: d.resume(s)}
}

// resume is all that a client needs to go on with a session.
func (d *model) resume(s *modelSession) *wire.SessionState {
	state := &wire.SessionState{SessionId: s.id, TtlMs: s.ttl, Holds: d.holdsOf(s.id)}
	for _, a := range d.answers {
		if a.session == s.id && a.waited && !a.acked {
			r := d.repeat(a)
			r.Seq, r.Holders = a.seq, nil
			state.Outcomes = append(state.Outcomes, r)
		}
	}
	slices.SortFunc(state.Outcomes, func(a, b *wire.Result) int { return int(a.Seq) - int(b.Seq) })
	return state
}

func (d *model) holdsOf(session uint64) []*wire.HeldLock {
	var held []*wire.HeldLock
	for _, c := range d.of(session) {
		if c.token != 0 {
			held = append(held, &wire.HeldLock{
				Name: c.locks[0].Name, HoldId: c.id, Token: c.token, Seq: c.seq, Revision: c.granted,
				Locks: d.liveRequests(c), Count: c.count, MaxHoldMs: c.maxHold, Generation: c.holds,
				Revocation: c.revoked, Wanted: c.wanted,
			})
		}
	}
	return held
}

// liveRequests are the locks of a claim as they are now.
func (d *model) liveRequests(c *modelClaim) []*wire.LockRequest {
	var locks []*wire.LockRequest
	for _, l := range c.locks {
		l = proto.CloneOf(l)
		l.Limit = d.locks[l.Name].limit
		locks = append(locks, l)
	}
	return locks
}

// of are the claims of a session that it still has: no delays.
func (d *model) of(session uint64) []*modelClaim {
	var found []*modelClaim
	for _, c := range d.claims {
		if c.session == session && !c.over {
			found = append(found, c)
		}
	}
	return found
}

// load is what counts against the session's limit.
func (d *model) load(session uint64) (holds, waits uint64) {
	for _, c := range d.of(session) {
		if c.token != 0 {
			holds++
		}
		if c.token == 0 || c.upgrade != nil {
			waits++
		}
	}
	return holds, waits
}

func (d *model) ack(s *modelSession, cmd *wire.Command) {
	s.mark = max(s.mark, cmd.AckedBelow)
	for _, a := range d.answers {
		if a.session == s.id && a.waited && a.said.Status != wire.Status_QUEUED && slices.Contains(cmd.Acked, a.seq) {
			a.acked = true
		}
	}
}

// shown says whether an answer is still remembered.
func (d *model) shown(a *modelAnswer) bool {
	s := d.find(a.session)
	return s != nil && (a.seq >= s.mark || a.waited && !a.acked)
}

func (d *model) recall(session, seq uint64) *modelAnswer {
	for _, a := range d.answers {
		if a.session == session && a.seq == seq && d.shown(a) {
			return a
		}
	}
	return nil
}

func (d *model) request(s *modelSession, cmd *wire.Command) *wire.Result {
	if cmd.Seq == 0 {
		return says(wire.Status_INVALID_ARGUMENT)
	}
	if a := d.recall(s.id, cmd.Seq); a != nil {
		return d.repeat(a)
	}
	if cmd.Seq < s.mark {
		for _, c := range d.of(s.id) {
			if c.seq == cmd.Seq && c.token != 0 {
				return d.grantOf(c)
			}
		}
		return says(wire.Status_STALE)
	}
	final := 0
	for _, a := range d.answers {
		if a.session == s.id && d.shown(a) && a.said.Status != wire.Status_QUEUED {
			final++
		}
	}
	if final >= int(d.limits.MaxWindow) {
		return says(wire.Status_RESOURCE_EXHAUSTED)
	}
	answer := d.execute(s, cmd)
	d.note(s, cmd.Seq, answer)
	return answer
}

// note keeps an answer for those who ask again.
func (d *model) note(s *modelSession, seq uint64, answer *wire.Result) {
	if answer.Revision == 0 {
		answer.Revision = d.revision
	}
	d.answers = append(d.answers, &modelAnswer{session: s.id, seq: seq, said: proto.CloneOf(answer), waited: answer.Status == wire.Status_QUEUED})
}

// repeat is an old answer, told again. Only waits tell the present holders.
func (d *model) repeat(a *modelAnswer) *wire.Result {
	again := proto.CloneOf(a.said)
	again.Holders, again.Position = nil, 0
	if again.Status == wire.Status_QUEUED {
		c := d.claim(again.HoldId)
		again.Position, again.Holders = d.place(c), d.told(c.locks, d.taken)
	}
	return again
}

func (d *model) execute(s *modelSession, cmd *wire.Command) *wire.Result {
	switch op := cmd.Op.(type) {
	case *wire.Command_Acquire:
		return d.acquire(s, cmd.Seq, op.Acquire)
	case *wire.Command_Release:
		return d.release(s, op.Release)
	case *wire.Command_Cancel:
		return d.cancel(s, op.Cancel)
	case *wire.Command_SetValue:
		return d.setValue(s, op.SetValue)
	case *wire.Command_Upgrade:
		return d.up(s, cmd.Seq, op.Upgrade)
	case *wire.Command_Downgrade:
		return d.down(s, op.Downgrade)
	case *wire.Command_Extend:
		return d.extend(s, op.Extend)
	}
	return says(wire.Status_INVALID_ARGUMENT)
}

func (d *model) expire(op *wire.ExpireSession) *wire.Result {
	s := d.find(op.SessionId)
	if s == nil {
		return says(wire.Status_SESSION_LOST)
	}
	if op.Term != d.term || op.Generation != s.generation {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	d.end(s, wire.Event_SESSION_EXPIRED)
	return says(wire.Status_OK)
}

// end ends all that a session has, in the order in which it asked, and only then
// lets others have it.
func (d *model) end(s *modelSession, what wire.Event_Type) {
	for _, c := range d.of(s.id) {
		switch {
		case c.token == 0:
			d.drop(c)
			d.tellCancelled(c, wire.Status_SESSION_LOST)
		case what == wire.Event_SESSION_EXPIRED:
			d.endUpgrade(c, wire.Status_SESSION_LOST)
			d.tellHold(wire.Event_EXPIRED, c).Status = wire.Status_SESSION_LOST
			d.bury(c)
		default:
			d.endUpgrade(c, wire.Status_SESSION_LOST)
			d.drop(c)
			d.tellHold(wire.Event_RELEASED, c)
		}
	}
	d.live = slices.DeleteFunc(d.live, func(o *modelSession) bool { return o == s })
	d.tell(&wire.Event{Type: what, SessionId: s.id, Generation: s.generation, Leased: s.leased})
	d.settle()
}
