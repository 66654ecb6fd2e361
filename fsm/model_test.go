package fsm

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// model is the lock service as one would explain it on paper: every lock is a line
// of people, whoever stands in front holds it. It shares no code and no shape with
// the machine: no queue, no counts, nothing is ever forgotten, only no longer shown.
type model struct {
	limits          *wire.Settings
	revision, token uint64
	term            uint64
	leader          string
	opened          uint64
	live            []*modelSession
	lines           map[string][]*modelClaim
	answers         []*modelAnswer
	news            []string
}

type modelSession struct {
	id, generation, mark uint64
	hash                 string
	ttl                  uint32
}

type modelClaim struct {
	id, session, owner, seq, token, granted uint64
	name, value                             string
	forever                                 bool
}

// modelAnswer is what a request came to; said changes when a wait ends.
type modelAnswer struct {
	session, seq  uint64
	said          said
	waited, acked bool
}

// said is an answer, as far as it is compared.
type said struct {
	status                          wire.Status_Code
	revision, hold, token, position uint64
	holders                         string
	session                         string
}

// newModel is a cluster after its bootstrap, which was the first command.
func newModel(limits *wire.Settings, floor uint64) *model {
	return &model{limits: limits, revision: 1, token: floor, lines: map[string][]*modelClaim{}}
}

func (d *model) apply(cmd *wire.Command) said {
	d.revision++
	d.news = nil
	answer := d.run(cmd)
	if answer.revision == 0 {
		answer.revision = d.revision
	}
	return answer
}

func (d *model) run(cmd *wire.Command) said {
	switch op := cmd.Op.(type) {
	case nil:
		return said{status: wire.Status_INVALID_ARGUMENT}
	case *wire.Command_BeginTerm:
		if op.BeginTerm.Term == 0 {
			return said{status: wire.Status_INVALID_ARGUMENT}
		}
		if op.BeginTerm.Term < d.term || op.BeginTerm.Term == d.term && op.BeginTerm.LeaderId != d.leader {
			return said{status: wire.Status_FAILED_PRECONDITION}
		}
		d.term, d.leader = op.BeginTerm.Term, op.BeginTerm.LeaderId
		return said{status: wire.Status_OK}
	case *wire.Command_OpenSession:
		return d.open(op.OpenSession)
	case *wire.Command_ExpireSession:
		return d.expire(op.ExpireSession)
	case *wire.Command_TimeoutWait:
		return d.timeout(op.TimeoutWait)
	}
	s := d.find(cmd.SessionId)
	if s == nil {
		return said{status: wire.Status_SESSION_LOST}
	}
	if op, ok := cmd.Op.(*wire.Command_AttachSession); ok && string(op.AttachSession.SecretHash) != s.hash {
		return said{status: wire.Status_PERMISSION_DENIED}
	}
	d.ack(s, cmd)
	switch cmd.Op.(type) {
	case *wire.Command_AttachSession:
		return d.attach(s)
	case *wire.Command_Acknowledge:
		return said{status: wire.Status_OK}
	case *wire.Command_CloseSession:
		d.end(s, "SESSION_CLOSED", "RELEASED")
		return said{status: wire.Status_OK}
	}
	return d.request(s, cmd)
}

func (d *model) find(id uint64) *modelSession {
	for _, s := range d.live {
		if s.id == id {
			return s
		}
	}
	return nil
}

func (d *model) open(op *wire.OpenSession) said {
	if len(op.SecretHash) != sha256.Size {
		return said{status: wire.Status_INVALID_ARGUMENT}
	}
	for _, s := range d.live {
		if s.hash == string(op.SecretHash) {
			return d.attach(s)
		}
	}
	ttl := op.TtlMs
	if ttl == 0 {
		ttl = d.limits.DefaultTtlMs
	}
	switch {
	case ttl < d.limits.MinTtlMs, ttl > d.limits.MaxTtlMs:
		return said{status: wire.Status_INVALID_ARGUMENT}
	case proto.Size(op.Client) > int(d.limits.MaxClientInfoBytes), len(d.live) >= int(d.limits.MaxSessions):
		return said{status: wire.Status_RESOURCE_EXHAUSTED}
	}
	d.opened++
	s := &modelSession{id: d.opened, generation: 1, hash: string(op.SecretHash), ttl: ttl}
	d.live = append(d.live, s)
	d.tell("SESSION_OPENED session %d generation %d", s.id, 1)
	return said{status: wire.Status_OK, session: d.resume(s)}
}

func (d *model) attach(s *modelSession) said {
	s.generation++
	d.tell("SESSION_ATTACHED session %d generation %d", s.id, s.generation)
	return said{status: wire.Status_OK, session: d.resume(s)}
}

// resume is the session's state as text.
func (d *model) resume(s *modelSession) string {
	var parts []string
	for _, a := range d.answers {
		if a.session == s.id && a.waited && !a.acked {
			parts = append(parts, fmt.Sprintf("request %d %v position %d", a.seq, a.said.status, d.position(a.said.hold)))
		}
	}
	slices.Sort(parts)
	for _, c := range d.claims(s.id) {
		if c.token != 0 {
			parts = append(parts, fmt.Sprintf("hold %d %s token %d seq %d", c.id, c.name, c.token, c.seq))
		}
	}
	return fmt.Sprintf("session %d ttl %d: %s", s.id, s.ttl, strings.Join(parts, ", "))
}

// claims are those of a session, by id.
func (d *model) claims(session uint64) []*modelClaim {
	var found []*modelClaim
	for _, line := range d.lines {
		for _, c := range line {
			if c.session == session {
				found = append(found, c)
			}
		}
	}
	slices.SortFunc(found, func(a, b *modelClaim) int { return int(a.id) - int(b.id) })
	return found
}

// position of a claim that waits; 0 if it does not.
func (d *model) position(id uint64) uint64 {
	for _, line := range d.lines {
		for i, c := range line {
			if c.id == id {
				return uint64(i) // the one in front holds it
			}
		}
	}
	return 0
}

func (d *model) ack(s *modelSession, cmd *wire.Command) {
	s.mark = max(s.mark, cmd.AckedBelow)
	for _, a := range d.answers {
		if a.session == s.id && a.waited && a.said.status != wire.Status_QUEUED && slices.Contains(cmd.Acked, a.seq) {
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

func (d *model) request(s *modelSession, cmd *wire.Command) said {
	if cmd.Seq == 0 {
		return said{status: wire.Status_INVALID_ARGUMENT}
	}
	if a := d.recall(s.id, cmd.Seq); a != nil {
		return d.repeat(a)
	}
	if cmd.Seq < s.mark {
		for _, c := range d.claims(s.id) {
			if c.seq == cmd.Seq && c.token != 0 {
				return said{status: wire.Status_GRANTED, revision: c.granted, hold: c.id, token: c.token}
			}
		}
		return said{status: wire.Status_STALE}
	}
	final := 0
	for _, a := range d.answers {
		if a.session == s.id && d.shown(a) && a.said.status != wire.Status_QUEUED {
			final++
		}
	}
	if final >= int(d.limits.MaxWindow) {
		return said{status: wire.Status_RESOURCE_EXHAUSTED}
	}
	answer := d.execute(s, cmd)
	if answer.revision == 0 {
		answer.revision = d.revision
	}
	d.answers = append(d.answers, &modelAnswer{session: s.id, seq: cmd.Seq, said: answer, waited: answer.status == wire.Status_QUEUED})
	return answer
}

// repeat is an old answer, told again. Only waits tell the present holders.
func (d *model) repeat(a *modelAnswer) said {
	again := a.said
	again.holders, again.position = "", 0
	if again.status == wire.Status_QUEUED {
		again.position = d.position(again.hold)
		for _, line := range d.lines {
			if slices.ContainsFunc(line, func(c *modelClaim) bool { return c.id == again.hold }) {
				again.holders = fmt.Sprint(line[0].id)
			}
		}
	}
	return again
}

func (d *model) execute(s *modelSession, cmd *wire.Command) said {
	switch op := cmd.Op.(type) {
	case *wire.Command_Acquire:
		return d.acquire(s, cmd.Seq, op.Acquire)
	case *wire.Command_Release:
		return d.release(s, op.Release)
	case *wire.Command_Cancel:
		return d.cancel(s, op.Cancel)
	case *wire.Command_SetValue:
		return d.setValue(s, op.SetValue)
	}
	return said{status: wire.Status_INVALID_ARGUMENT}
}

func (d *model) acquire(s *modelSession, seq uint64, op *wire.Acquire) said {
	if len(op.Locks) != 1 || strings.Contains(op.Locks[0].Name, "//") || op.Locks[0].Mode > 1 {
		return said{status: wire.Status_INVALID_ARGUMENT}
	}
	if len(op.Value) > int(d.limits.MaxValueBytes) {
		return said{status: wire.Status_RESOURCE_EXHAUSTED}
	}
	name := op.Locks[0].Name
	line := d.lines[name]
	for i, c := range line {
		if c.session == s.id && c.owner == op.Owner {
			if i == 0 {
				return said{status: wire.Status_ALREADY_HELD}
			}
			return said{status: wire.Status_ALREADY_QUEUED}
		}
	}
	if len(line) > 0 && op.WaitMs == 0 && !op.WaitForever {
		return said{status: wire.Status_NOT_ACQUIRED, holders: fmt.Sprint(line[0].id)}
	}
	if len(d.claims(s.id)) >= int(d.limits.MaxClaimsPerSession) ||
		len(line) == 0 && len(d.lines) >= int(d.limits.MaxLocks) ||
		len(line) > int(d.limits.MaxWaitersPerLock) {
		return said{status: wire.Status_RESOURCE_EXHAUSTED}
	}
	c := &modelClaim{id: d.revision, session: s.id, owner: op.Owner, seq: seq, name: name, value: string(op.Value), forever: op.WaitForever}
	d.lines[name] = append(line, c)
	if len(line) == 0 {
		d.serve(c, false)
		return said{status: wire.Status_GRANTED, hold: c.id, token: c.token}
	}
	d.tellClaim("QUEUED", c)
	return said{status: wire.Status_QUEUED, hold: c.id, position: uint64(len(line)), holders: fmt.Sprint(line[0].id)}
}

// serve gives the lock to the one in front of its line.
func (d *model) serve(c *modelClaim, waited bool) {
	d.token++
	c.token, c.granted = d.token, d.revision
	d.tellClaim("GRANTED", c)
	if waited {
		d.news[len(d.news)-1] += " waited"
		d.rewrite(c, wire.Status_GRANTED)
	}
}

// rewrite ends a wait: its request has come to something else now.
func (d *model) rewrite(c *modelClaim, status wire.Status_Code) said {
	for _, a := range d.answers {
		if a.session == c.session && a.seq == c.seq {
			a.said = said{status: status, revision: d.revision, hold: c.id, token: c.token}
			return a.said
		}
	}
	panic("no request began this wait")
}

// leave takes a claim out of its line; next serves the line.
func (d *model) leave(c *modelClaim) {
	d.lines[c.name] = slices.DeleteFunc(slices.Clone(d.lines[c.name]), func(o *modelClaim) bool { return o == c })
}

func (d *model) next(name string) {
	if line := d.lines[name]; len(line) == 0 {
		delete(d.lines, name)
	} else if line[0].token == 0 {
		d.serve(line[0], true)
	}
}

func (d *model) held(s *modelSession, hold, token uint64) *modelClaim {
	for _, c := range d.claims(s.id) {
		if c.id == hold && c.token == token && token != 0 {
			return c
		}
	}
	return nil
}

func (d *model) release(s *modelSession, op *wire.Release) said {
	done := said{status: wire.Status_OK, hold: op.HoldId, token: op.Token}
	if c := d.held(s, op.HoldId, op.Token); c != nil {
		d.leave(c)
		d.tellClaim("RELEASED", c)
		d.next(c.name)
		return done
	}
	for _, a := range d.answers {
		if a.session == s.id && d.shown(a) && op.Token != 0 && a.said.status == wire.Status_OK && a.said.hold == op.HoldId && a.said.token == op.Token {
			return done
		}
	}
	return said{status: wire.Status_NOT_HELD}
}

func (d *model) setValue(s *modelSession, op *wire.SetValue) said {
	if len(op.Value) > int(d.limits.MaxValueBytes) {
		return said{status: wire.Status_RESOURCE_EXHAUSTED}
	}
	c := d.held(s, op.HoldId, op.Token)
	if c == nil {
		return said{status: wire.Status_NOT_HELD}
	}
	c.value = string(op.Value)
	d.tellClaim("VALUE_SET", c)
	return said{status: wire.Status_OK}
}

func (d *model) cancel(s *modelSession, op *wire.Cancel) said {
	for _, c := range d.claims(s.id) {
		if c.seq == op.AcquireSeq && c.token == 0 {
			return d.giveUp(c, wire.Status_CANCELLED)
		}
	}
	if a := d.recall(s.id, op.AcquireSeq); a != nil {
		return d.repeat(a)
	}
	for _, c := range d.claims(s.id) {
		if c.seq == op.AcquireSeq {
			return said{status: wire.Status_GRANTED, revision: c.granted, hold: c.id, token: c.token}
		}
	}
	return said{status: wire.Status_NOT_FOUND}
}

func (d *model) giveUp(c *modelClaim, why wire.Status_Code) said {
	d.leave(c)
	d.tellClaim("CANCELLED", c)
	d.news[len(d.news)-1] += " " + why.String()
	return d.rewrite(c, why)
}

func (d *model) timeout(op *wire.TimeoutWait) said {
	for _, line := range d.lines {
		for _, c := range line {
			switch {
			case c.id != op.WaitId:
				continue
			case op.Term != d.term, op.Generation != 1:
				return said{status: wire.Status_FAILED_PRECONDITION}
			case c.token != 0:
				return said{status: wire.Status_GRANTED, revision: c.granted, hold: c.id, token: c.token}
			case c.forever:
				return said{status: wire.Status_FAILED_PRECONDITION}
			}
			return d.giveUp(c, wire.Status_TIMEOUT)
		}
	}
	return said{status: wire.Status_NOT_FOUND}
}

func (d *model) expire(op *wire.ExpireSession) said {
	s := d.find(op.SessionId)
	if s == nil {
		return said{status: wire.Status_SESSION_LOST}
	}
	if op.Term != d.term || op.Generation != s.generation {
		return said{status: wire.Status_FAILED_PRECONDITION}
	}
	d.end(s, "SESSION_EXPIRED", "EXPIRED")
	return said{status: wire.Status_OK}
}

func (d *model) end(s *modelSession, what, holds string) {
	gone := d.claims(s.id)
	for _, c := range gone {
		d.leave(c)
		if c.token != 0 {
			d.tellClaim(holds, c)
			if holds == "EXPIRED" {
				d.news[len(d.news)-1] += " SESSION_LOST"
			}
		} else {
			d.tellClaim("CANCELLED", c)
			d.news[len(d.news)-1] += " SESSION_LOST"
		}
	}
	d.live = slices.DeleteFunc(d.live, func(o *modelSession) bool { return o == s })
	d.tell("%s session %d generation %d", what, s.id, s.generation)
	for _, c := range gone {
		d.next(c.name)
	}
}

func (d *model) tell(format string, args ...any) {
	d.news = append(d.news, fmt.Sprintf(format, args...))
}

func (d *model) tellClaim(what string, c *modelClaim) {
	d.tell("%s %s session %d owner %d seq %d hold %d token %d", what, c.name, c.session, c.owner, c.seq, c.id, c.token)
}
