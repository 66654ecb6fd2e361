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

// schedule is a heap of sessions by the time of their next event. Acknowledgements only postpone events and
// do not update the heap, which keeps it off the hot path: an entry may come up too early, but never too
// late.
type schedule []*Session

// Len returns the number of sessions.
func (a schedule) Len() int { return len(a) }

// Less orders sessions by time.
func (a schedule) Less(i, j int) bool { return a[i].wakeAt < a[j].wakeAt }

// Swap exchanges two sessions.
func (a schedule) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i, j
}

// Push adds a session.
func (a *schedule) Push(x any) {
	s := x.(*Session)
	s.place = len(*a)
	*a = append(*a, s)
}

// Pop removes the last session.
func (a *schedule) Pop() any {
	last := len(*a) - 1
	s := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	s.place = -1
	return s
}

// armAt makes the alarm fire at a time or earlier.
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

// ring handles whatever is due for all sessions and requests.
func (c *Client) ring() {
	c.mu.Lock()
	defer c.unlock()
	if c.closed {
		return
	}
	c.alarmAt = 0
	now := c.clock.Now()
	for len(c.schedule) > 0 && c.schedule[0].due(now) {
		s := c.schedule[0]
		s.tick(now)
		if s.place >= 0 {
			heap.Fix(&c.schedule, s.place)
		}
	}
	c.retryStalled(now)
	c.checkConnection(now)
	c.rearm(now)
}

// rearm sets the alarm to the earliest upcoming event. The events of sessions are handled on time; for the
// others the alarm fires at most once per millisecond.
func (c *Client) rearm(now time.Duration) {
	if len(c.schedule) > 0 {
		c.armAt(c.schedule[0].wakeAt)
	}
	at := never
	if c.retryAt != 0 {
		at = c.retryAt
	}
	if cn := c.conn; cn != nil && cn.err == nil {
		k := c.oldest()
		at = min(at, c.silentAt(cn, k), c.doubtAt(cn, k))
		if c.quiet(cn) {
			at = min(at, cn.pingAt())
		}
		at = min(at, c.rerouteAt(cn))
		if k != nil && !c.probing {
			at = min(at, max(k.sentAt+answerTimeout, c.probeAt))
		}
		if !cn.leads && c.wanted() && !c.probing {
			at = min(at, c.probeAt)
		}
	}
	if at != never {
		c.armAt(max(at, now+time.Millisecond))
	}
}

// begin puts the session on the schedule.
func (s *Session) begin(sentAt time.Duration) {
	s.proofAt = sentAt
	s.heartbeatAt = sentAt + s.interval()
	s.wakeAt = s.nextEvent()
	heap.Push(&s.client.schedule, s)
	s.client.armAt(s.wakeAt)
}

// interval returns TTL/3, randomly reduced a little so that sessions do not send their heartbeats in step.
func (s *Session) interval() time.Duration {
	third := s.ttl / 3
	return third - rand.N(third/8+1)
}

// lead returns how early a heartbeat may be sent to share one write with others. Both sides spend far more
// on waking up for a heartbeat than on processing it.
func (s *Session) lead() time.Duration { return s.ttl / 48 }

// due reports whether the session needs attention now.
func (s *Session) due(now time.Duration) bool {
	return s.wakeAt <= now || s.wakeAt == s.heartbeatAt && s.heartbeatAt-s.lead() <= now
}

// margin returns how much earlier than the cluster the client considers a session ended.
func margin(ttl time.Duration) time.Duration { return max(ttl/100, 20*time.Millisecond) }

// deadline returns when the session ends unless another request is acknowledged.
func (s *Session) deadline() time.Duration { return s.proofAt + s.ttl - margin(s.ttl) }

// overdue returns when the session enters Jeopardy: when the last acknowledgement is one and a half
// heartbeat intervals old.
func (s *Session) overdue() time.Duration { return s.proofAt + s.ttl/2 }

func (s *Session) nextEvent() time.Duration {
	at := min(s.deadline(), s.heartbeatAt, s.boundAt)
	if s.state == Active {
		at = min(at, s.overdue())
	}
	return at
}

// tick does what is due: first the deadline, then the state, then a heartbeat.
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
	if now >= s.heartbeatAt-s.lead() {
		s.heartbeatAt = now + s.interval()
		s.sendHeartbeat()
	}
	s.wakeAt = s.nextEvent()
}

// unschedule removes the session from the schedule.
func (s *Session) unschedule() {
	if s.place >= 0 {
		heap.Remove(&s.client.schedule, s.place)
	}
}

// sendHeartbeat sends a heartbeat, unless one is in flight or the session is not attached; its attach renews it as
// well.
func (s *Session) sendHeartbeat() {
	c := s.client
	if s.heartbeat != nil || c.conn == nil || s.conn != c.conn {
		return
	}
	s.heartbeat = &call{kind: kindHeartbeat, session: s}
	s.heartbeat.request.SessionId = s.id
	s.heartbeat.request.Body = &wire.Request_Heartbeat{Heartbeat: &wire.Heartbeat{}}
	c.submit(s.heartbeat)
}

// heartbeatFailed schedules another heartbeat soon, since the node could not serve this one.
func (s *Session) heartbeatFailed() {
	c := s.client
	s.heartbeat = nil
	s.heartbeatAt = c.clock.Now() + min(s.ttl/20, backoff(c.retries, retryFirst, retryMost))
	c.retries++
	s.wakeBy(s.heartbeatAt)
}

// wakeBy makes the alarm handle the session by that time.
func (s *Session) wakeBy(at time.Duration) {
	if s.place >= 0 && at < s.wakeAt {
		s.wakeAt = at
		heap.Fix(&s.client.schedule, s.place)
		s.client.armAt(at)
	}
}

// proved extends the deadline: a request sent at that time was acknowledged with a proof of leadership that
// is newer than the request's arrival.
func (s *Session) proved(sentAt time.Duration) {
	if sentAt <= s.proofAt {
		return
	}
	s.proofAt = sentAt
	s.heartbeatAt = max(s.heartbeatAt, sentAt+s.interval())
	if s.state == Jeopardy && s.client.clock.Now() < s.overdue() {
		s.enter(Active)
	}
}

// proves reports whether an answer with this status proves leadership. Such answers come only from the log
// or from a heartbeat's leadership check.
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

// alive is aliveAt for the current time. It is checked at each use of the session.
func (s *Session) alive() bool { return s.aliveAt(s.client.mu.now()) }

// aliveAt ends the session if its deadline has passed, ends the holds whose own deadline has passed, and
// reports whether the session is alive.
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
