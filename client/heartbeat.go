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

// sessionTable holds the open sessions and the timer for their events and for those of the connection. It is
// guarded by the client's mutex.
type sessionTable struct {
	client *Client

	sessions map[uint64]*Session
	schedule schedule // sessions by the time of their next event

	alarm   Timer
	alarmAt time.Duration // 0 if not set
}

// armAt makes the alarm fire at a time or earlier.
func (t *sessionTable) armAt(at time.Duration) {
	if t.client.halted || t.alarmAt != 0 && t.alarmAt <= at {
		return
	}
	if t.alarm != nil {
		t.alarm.Stop()
	}
	t.alarmAt = at
	t.alarm = t.client.clock.AfterFunc(max(0, at-t.client.clock.Now()), t.ring)
}

// ring handles whatever is due for all sessions and requests.
func (t *sessionTable) ring() {
	t.client.mu.Lock()
	defer t.client.unlock()
	if t.client.halted {
		return
	}
	t.alarmAt = 0
	now := t.client.clock.Now()
	for len(t.schedule) > 0 && t.schedule[0].due(now) {
		s := t.schedule[0]
		s.tick(now)
		if s.place >= 0 {
			heap.Fix(&t.schedule, s.place)
		}
	}
	t.client.retryStalled(now)
	t.client.checkConnection(now)
	t.rearm(now)
}

// rearm sets the alarm to the earliest upcoming event. The events of sessions are handled on time; for the
// others the alarm fires at most once per millisecond.
func (t *sessionTable) rearm(now time.Duration) {
	if len(t.schedule) > 0 {
		t.armAt(t.schedule[0].wakeAt)
	}
	at := never
	if t.client.retryAt != 0 {
		at = t.client.retryAt
	}
	if cn := t.client.conn; cn != nil && cn.err == nil {
		k := t.client.oldest()
		at = min(at, t.client.silentAt(cn, k), t.client.doubtAt(cn, k))
		if t.client.quiet(cn) {
			at = min(at, cn.pingAt())
		}
	}
	at = min(at, t.client.search.seekAt(now))
	if at != never {
		t.armAt(max(at, now+time.Millisecond))
	}
}

// lifetime is when a session ends and when its next heartbeat is due. It is guarded by the client's mutex.
type lifetime struct {
	session *Session

	proofAt     time.Duration      // when the last acknowledged request was sent
	heartbeatAt time.Duration      // when the next heartbeat is due
	boundAt     time.Duration      // no later than the earliest deadline of a hold with its own bound
	bounded     map[*held]struct{} // holds with their own bound; nil until needed
	idleAt      time.Duration      // no later than the time at which a cached hold was unused for too long
	wakeAt      time.Duration      // key in the schedule
	place       int                // index in the schedule; -1 if not in it
	heartbeat   *call              // in flight; nil if none is
	known       position           // the latest when it was sent
}

// begin puts the session on the schedule.
func (l *lifetime) begin(sentAt time.Duration) {
	l.proofAt = sentAt
	l.heartbeatAt = sentAt + l.interval()
	l.wakeAt = l.nextEvent()
	heap.Push(&l.session.client.schedule, l.session)
	l.session.client.armAt(l.wakeAt)
}

// interval returns TTL/3, randomly reduced a little so that sessions do not send their heartbeats in step.
func (l *lifetime) interval() time.Duration {
	third := l.session.ttl / 3
	return third - rand.N(third/8+1)
}

// lead returns how early a heartbeat may be sent to share one write with others. Both sides spend far more
// on waking up for a heartbeat than on processing it.
func (l *lifetime) lead() time.Duration { return l.session.ttl / 48 }

// due reports whether the session needs attention now.
func (l *lifetime) due(now time.Duration) bool {
	return l.wakeAt <= now || l.wakeAt == l.heartbeatAt && l.heartbeatAt-l.lead() <= now
}

// margin returns how much earlier than the cluster the client considers a session ended.
func margin(ttl time.Duration) time.Duration { return max(ttl/100, 20*time.Millisecond) }

// deadline returns when the session ends unless another request is acknowledged.
func (l *lifetime) deadline() time.Duration { return l.proofAt + l.session.ttl - margin(l.session.ttl) }

// overdue returns when the session enters Jeopardy: when the last acknowledgement is one and a half
// heartbeat intervals old.
func (l *lifetime) overdue() time.Duration { return l.proofAt + l.session.ttl/2 }

func (l *lifetime) nextEvent() time.Duration {
	at := min(l.deadline(), l.heartbeatAt, l.boundAt, l.idleAt)
	if l.session.state == Active {
		at = min(at, l.overdue())
	}
	return at
}

// tick does what is due: first the deadline, then the state, then a heartbeat.
func (l *lifetime) tick(now time.Duration) {
	if l.session.closing != nil {
		l.session.leave(&StatusError{StatusUncertain, "the session was not closed before its TTL had passed"})
		return
	}
	if !l.aliveAt(now) {
		return
	}
	if l.session.state == Active && now >= l.overdue() {
		l.session.enter(Jeopardy)
	}
	if now >= l.idleAt {
		l.session.releaseIdle(now)
	}
	if now >= l.heartbeatAt-l.lead() {
		l.heartbeatAt = now + l.interval()
		l.sendHeartbeat()
	}
	l.wakeAt = l.nextEvent()
}

// unschedule removes the session from the schedule.
func (l *lifetime) unschedule() {
	if l.place >= 0 {
		heap.Remove(&l.session.client.schedule, l.place)
	}
}

// sendHeartbeat sends a heartbeat, unless one is in flight or the session is not attached; its attach renews it as
// well.
func (l *lifetime) sendHeartbeat() {
	c := l.session.client
	if l.heartbeat != nil || c.conn == nil || l.session.conn != c.conn {
		return
	}
	l.known = c.conn.seen
	l.heartbeat = &call{kind: kindHeartbeat, session: l.session}
	l.heartbeat.request.SessionId = l.session.id
	l.heartbeat.request.Body = &wire.Request_Heartbeat{Heartbeat: &wire.Heartbeat{Idle: l.session.idleHolds()}}
	c.submit(l.heartbeat)
}

// heartbeatFailed schedules another heartbeat soon, since the node could not serve this one.
func (l *lifetime) heartbeatFailed() {
	c := l.session.client
	l.heartbeat = nil
	l.heartbeatAt = c.clock.Now() + min(l.session.ttl/20, backoff(c.retries, retryFirst, retryMost))
	c.retries++
	l.wakeBy(l.heartbeatAt)
}

// heartbeatBy makes the next heartbeat due by that time.
func (l *lifetime) heartbeatBy(at time.Duration) {
	if at < l.heartbeatAt {
		l.heartbeatAt = at
		l.wakeBy(at)
	}
}

// wakeBy makes the alarm handle the session by that time.
func (l *lifetime) wakeBy(at time.Duration) {
	if l.place >= 0 && at < l.wakeAt {
		l.wakeAt = at
		heap.Fix(&l.session.client.schedule, l.place)
		l.session.client.armAt(at)
	}
}

// proved extends the deadline: a request sent at that time was acknowledged with a proof of leadership that
// is newer than the request's arrival.
func (l *lifetime) proved(sentAt time.Duration) {
	if sentAt <= l.proofAt {
		return
	}
	l.proofAt = sentAt
	l.heartbeatAt = max(l.heartbeatAt, sentAt+l.interval())
	if l.session.state == Jeopardy && l.session.client.clock.Now() < l.overdue() {
		l.session.enter(Active)
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
func (l *lifetime) alive() bool { return l.aliveAt(l.session.client.mu.now()) }

// aliveAt ends the session if its deadline has passed, ends the holds whose own deadline has passed, and
// reports whether the session is alive.
func (l *lifetime) aliveAt(now time.Duration) bool {
	if l.session.state != Lost && now >= l.deadline() {
		l.session.client.note(slog.LevelWarn, "session expired", "session", l.session.id, "late", now-l.deadline())
		l.session.lose(l.session.client.expiry())
	}
	if now >= l.boundAt {
		l.expireHolds(now)
	}
	return l.session.state != Lost
}
