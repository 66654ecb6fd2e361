package client

import (
	"container/heap"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// never is later than any event.
const never = time.Duration(math.MaxInt64)

// agenda is a heap of sessions by the time of their next event. Acknowledgements only
// move events back, so that an entry may come too early, never too late, and the hot
// path leaves the heap alone.
type agenda []*Session

// Len is the number of sessions.
func (a agenda) Len() int { return len(a) }

// Less orders by time.
func (a agenda) Less(i, j int) bool { return a[i].wakeAt < a[j].wakeAt }

// Swap exchanges two.
func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i, j
}

// Push adds one.
func (a *agenda) Push(x any) {
	s := x.(*Session)
	s.place = len(*a)
	*a = append(*a, s)
}

// Pop takes the last.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	s := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	s.place = -1
	return s
}

// armAt has the alarm ring at a time, or earlier.
func (c *Client) armAt(at time.Duration) {
	if c.closed || c.alarmAt != 0 && c.alarmAt <= at {
		return
	}
	if c.alarm != nil {
		c.alarm.Stop()
	}
	c.alarmAt = at
	c.alarm = c.clock.AfterFunc(max(0, at-c.clock.Now()), c.ring)
}

// ring does whatever is due, for all sessions and requests.
func (c *Client) ring() {
	c.mu.Lock()
	defer c.unlock()
	if c.closed {
		return
	}
	c.alarmAt = 0
	now := c.clock.Now()
	for len(c.agenda) > 0 && c.agenda[0].due(now) {
		s := c.agenda[0]
		s.tick(now)
		if s.place >= 0 {
			heap.Fix(&c.agenda, s.place)
		}
	}
	c.retryStalled(now)
	c.look(now)
	c.rearm(now)
}

// rearm sets the alarm to the earliest event to come. Sessions' are kept to the
// moment; the others are not worth ringing twice in a millisecond.
func (c *Client) rearm(now time.Duration) {
	if len(c.agenda) > 0 {
		c.armAt(c.agenda[0].wakeAt)
	}
	at := never
	if c.retryAt != 0 {
		at = c.retryAt
	}
	if cn := c.conn; cn != nil && cn.err == nil {
		k := c.oldest()
		if k != nil {
			at = min(at, c.silentAt(cn), c.doubtAt(cn, k))
		}
		if c.quiet(cn) {
			at = min(at, cn.pingAt())
		}
		at = min(at, c.detourAt(cn))
		if k != nil && !c.looking {
			at = min(at, max(k.sentAt+patience, c.lookAt))
		}
		if !cn.leads && c.wanted() && !c.looking {
			at = min(at, c.lookAt)
		}
	}
	if at != never {
		c.armAt(max(at, now+time.Millisecond))
	}
}

// begin puts the session on the agenda.
func (s *Session) begin(sentAt time.Duration) {
	s.proofAt = sentAt
	s.beatAt = sentAt + s.interval()
	s.wakeAt = s.nextEvent()
	heap.Push(&s.client.agenda, s)
	s.client.armAt(s.wakeAt)
}

// interval is TTL/3, a little less at random so that sessions do not march in step.
func (s *Session) interval() time.Duration {
	third := s.ttl / 3
	return third - rand.N(third/8+1)
}

// lead is how much before its time a heartbeat may go, to leave in one write with others:
// it takes both sides far longer to wake up for a heartbeat than to deal with it.
func (s *Session) lead() time.Duration { return s.ttl / 48 }

// due says whether something is to be done for the session now.
func (s *Session) due(now time.Duration) bool {
	return s.wakeAt <= now || s.wakeAt == s.beatAt && s.beatAt-s.lead() <= now
}

// margin is how much earlier than the cluster the session gives up.
func margin(ttl time.Duration) time.Duration { return max(ttl/100, 20*time.Millisecond) }

// deadline is when the session is over unless an acknowledgement comes.
func (s *Session) deadline() time.Duration { return s.proofAt + s.ttl - margin(s.ttl) }

// overdue is when the session is in jeopardy: the last acknowledgement is as old as
// one and a half heartbeats.
func (s *Session) overdue() time.Duration { return s.proofAt + s.ttl/2 }

func (s *Session) nextEvent() time.Duration {
	at := min(s.deadline(), s.beatAt, s.boundAt)
	if s.state == Active {
		at = min(at, s.overdue())
	}
	return at
}

// tick does what is due: the deadline first, then the state, then a heartbeat.
func (s *Session) tick(now time.Duration) {
	if s.closing != nil {
		s.leave(&StatusError{wire.Status_UNCERTAIN, "the session was not closed before its TTL had passed"})
		return
	}
	if !s.aliveAt(now) {
		return
	}
	if s.state == Active && now >= s.overdue() {
		s.enter(Jeopardy)
	}
	if now >= s.beatAt-s.lead() {
		s.beatAt = now + s.interval()
		s.beat()
	}
	s.wakeAt = s.nextEvent()
}

// unlist takes the session off the agenda.
func (s *Session) unlist() {
	if s.place >= 0 {
		heap.Remove(&s.client.agenda, s.place)
	}
}

// beat sends a heartbeat, unless one is under way or the session waits for being
// attached, which is a sign of life as well.
func (s *Session) beat() {
	c := s.client
	if s.heartbeat != nil || c.conn == nil || s.conn != c.conn {
		return
	}
	s.heartbeat = &call{kind: kindHeartbeat, session: s}
	s.heartbeat.request.SessionId = s.id
	s.heartbeat.request.Body = &wire.Request_Heartbeat{Heartbeat: &wire.Heartbeat{}}
	c.submit(s.heartbeat)
}

// heartbeatFailed tries again soon: the node could not serve just then.
func (s *Session) heartbeatFailed() {
	c := s.client
	s.heartbeat = nil
	s.beatAt = c.clock.Now() + min(s.ttl/20, backoff(c.retries, retryFirst, retryMost))
	c.retries++
	s.wakeBy(s.beatAt)
}

// wakeBy has the session looked at by then.
func (s *Session) wakeBy(at time.Duration) {
	if s.place >= 0 && at < s.wakeAt {
		s.wakeAt = at
		heap.Fix(&s.client.agenda, s.place)
		s.client.armAt(at)
	}
}

// proved moves the deadline: a request sent then was acknowledged on proof of
// leadership newer than its arrival.
func (s *Session) proved(sentAt time.Duration) {
	if sentAt <= s.proofAt {
		return
	}
	s.proofAt = sentAt
	s.beatAt = max(s.beatAt, sentAt+s.interval())
	if s.state == Jeopardy && s.client.clock.Now() < s.overdue() {
		s.enter(Active)
	}
}

// proves says which answers only the log or a heartbeat's proof can give.
func proves(status wire.Status_Code) bool {
	switch status {
	case wire.Status_OK, wire.Status_GRANTED, wire.Status_QUEUED, wire.Status_NOT_ACQUIRED,
		wire.Status_TIMEOUT, wire.Status_CANCELLED, wire.Status_NOT_HELD,
		wire.Status_ALREADY_HELD, wire.Status_ALREADY_QUEUED, wire.Status_UPGRADE_CONFLICT,
		wire.Status_DEADLOCK, wire.Status_MISMATCH:
		return true
	}
	return false
}

// alive is aliveAt now: the check at each use.
func (s *Session) alive() bool { return s.aliveAt(s.client.mu.now()) }

// aliveAt ends the session if its deadline has passed, and the holds whose own has.
func (s *Session) aliveAt(now time.Duration) bool {
	if s.state != Lost && now >= s.deadline() {
		s.client.note(slog.LevelWarn, "session expired", "session", s.id, "late", now-s.deadline())
		s.lose(ErrExpired)
	}
	if now >= s.boundAt {
		s.expireHolds(now)
	}
	return s.state != Lost
}
