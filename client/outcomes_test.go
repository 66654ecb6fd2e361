package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestConfirmed checks that a grant whose time was restarted is returned, and one that ended in the
// meantime is not.
func TestConfirmed(t *testing.T) {
	const until = time.Minute
	for name, test := range map[string]struct {
		bounded bool // by the answer
		ended   error
		late    bool
		want    error
		ends    time.Duration // of the hold
	}{
		"confirmed":         {true, nil, false, nil, time.Hour},
		"refused, in time":  {false, nil, false, nil, until},
		"refused, too late": {false, nil, true, ErrHoldExpired, until},
		"confirmed, late":   {true, nil, true, nil, time.Hour},
		"forced meanwhile":  {false, ErrForced, true, ErrForced, never},
		"not held any more": {false, ErrNotHeld, false, ErrHoldExpired, never},
		"forced, confirmed": {true, ErrForced, false, ErrForced, time.Hour},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			k := s.asked("x")
			k.confirming = true
			h := newHold(s, "x", 9, 9, 9)
			k.hold = h
			h.held.extra()
			if test.bounded {
				h.held.bound(time.Hour, 10)
			}
			if test.ended != nil {
				h.held.lose(test.ended)
			}
			if test.late {
				time.Sleep(until - c.clock.Now())
			}
			s.confirmed(k, until, 9)
			if !k.finished || !errors.Is(k.err, test.want) || (k.hold != nil) != (test.want == nil) {
				t.Errorf("%s: over %v with %v, %v", name, k.finished, k.err, k.hold)
			}
			if got := h.held.deadline(); got != test.ends {
				t.Errorf("%s: it ends at %v, want %v", name, got, test.ends)
			}
			if released := h.release != nil; released != (test.late && !test.bounded && test.ended == nil) {
				t.Errorf("%s: released %v", name, released)
			}
			before := h.ended
			if s.confirmed(k, until, 9); h.ended != before {
				t.Errorf("%s: confirmed twice", name)
			}
		})
	}
}

// TestMismatch checks that an answer must have the digest of its request and, if it names a lock, the same
// lock. Refusals made before the log have neither.
func TestMismatch(t *testing.T) {
	for name, test := range map[string]struct {
		status wire.Status_Code
		digest uint64 // offset from the right one; 99 means none
		lock   string
		wrong  bool
	}{
		"granted":                {wire.Status_GRANTED, 0, "x", false},
		"granted, no name":       {wire.Status_GRANTED, 0, "", false},
		"another request":        {wire.Status_GRANTED, 1, "x", true},
		"another lock":           {wire.Status_GRANTED, 0, "y", true},
		"granted, nothing":       {wire.Status_GRANTED, 99, "", true},
		"queued, nothing":        {wire.Status_QUEUED, 99, "", true},
		"refused, nothing":       {wire.Status_DEADLOCK, 99, "", true},
		"on arrival":             {wire.Status_RESOURCE_EXHAUSTED, 99, "", false},
		"on arrival, named":      {wire.Status_RESOURCE_EXHAUSTED, 99, "x", true},
		"on arrival, of another": {wire.Status_INVALID_ARGUMENT, 1, "", true},
		"on arrival, its own":    {wire.Status_INVALID_ARGUMENT, 0, "x", false},
	} {
		bubble.Test(t, func(t *testing.T) {
			_, s := opened(t)
			k := s.asked("x")
			digest := k.request.Digest() + test.digest
			if test.digest == 99 {
				digest = 0
			}
			if err := k.mismatch(&wire.Result{Status: test.status, Digest: digest, Name: test.lock}); errors.Is(err, ErrMismatchedAnswer) != test.wrong {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	decisions := []wire.Status_Code{
		wire.Status_GRANTED, wire.Status_QUEUED, wire.Status_NOT_ACQUIRED, wire.Status_TIMEOUT, wire.Status_CANCELLED, wire.Status_NOT_HELD,
		wire.Status_ALREADY_HELD, wire.Status_ALREADY_QUEUED, wire.Status_UPGRADE_CONFLICT, wire.Status_DEADLOCK, wire.Status_MISMATCH, wire.Status_COMPACTED,
	}
	is := map[wire.Status_Code]bool{}
	for _, code := range decisions {
		is[code] = true
	}
	for number := range wire.Status_Code_name {
		if code := wire.Status_Code(number); code != wire.Status_COMPACTED && decided(code) != is[code] {
			t.Errorf("%v is decided: %v", code, decided(code))
		}
	}
}

// TestSimple checks that only calls that nothing else can refer to are reused.
func TestSimple(t *testing.T) {
	for name, spoil := range map[string]func(*call){
		"failed":     func(k *call) { k.err = ErrNotHeld },
		"never sent": func(k *call) { k.sends = 0 },
		"sent twice": func(k *call) { k.sends = 2 },
		"it waits":   func(k *call) { k.queued = true },
		"cancelled":  func(k *call) { k.cancelled = true },
		"confirming": func(k *call) { k.confirming = true },
		"abandoned":  func(k *call) { k.abandoned = true },
	} {
		k := &call{sends: 1}
		if !k.simple() {
			t.Error("a call that was sent once and answered is not simple")
		}
		if spoil(k); k.simple() {
			t.Errorf("%s, and simple", name)
		}
	}
}

// TestTextsOfErrors checks that the texts of errors say what is known, and no more.
func TestTextsOfErrors(t *testing.T) {
	for want, err := range map[string]error{
		"quorumlock: deadlock":              &DeadlockError{},
		"quorumlock: deadlock: two\\nlines": &DeadlockError{Message: "two\nlines"},
		"quorumlock: deadlock: session 1 waits for a of an owner that is not shown, an owner that is not shown waits for a lock that may not be read of session 1": &DeadlockError{
			Cycle: []DeadlockStep{{SessionID: 1, Lock: "a"}, {}},
		},
		"quorumlock: deadlock: session 1 waits for a of session 2 (b) owner 3, session 2 (b) owner 3 waits for c of session 1": &DeadlockError{
			Cycle: []DeadlockStep{{1, 0, "", "a"}, {2, 3, "b", "c"}}, Message: "not shown"},
		"quorumlock: events compacted: a watch may begin after revision 7":       &CompactedError{Oldest: 7},
		"quorumlock: events compacted: a watch may begin after revision 7: gone": &CompactedError{Oldest: 7, Message: "gone"},
		"quorumlock: taken away by an operator":                                  forced(""),
		"quorumlock: taken away by an operator: stuck":                           forced("stuck"),
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err.Error(), want)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	err := stopped(ctx, ErrUncertain)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrUncertain) || !strings.Contains(err.Error(), "enough") {
		t.Error(err)
	}
	plain, cancel2 := context.WithCancel(context.Background())
	cancel2()
	if err := stopped(plain, nil); err.Error() != "quorumlock: stopped waiting: context canceled" {
		t.Error(err)
	}
}

// TestPumpOfAnAbandonedConnection checks that nothing is sent on a connection that the client has left.
func TestPumpOfAnAbandonedConnection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, _ := opened(t)
		c.conn.err = errors.New("left")
		k := &call{kind: kindRead}
		k.request.Body = &wire.Request_GetLock{GetLock: &wire.GetLockRequest{Name: "x", QueueLimit: 1}}
		if c.submit(k); k.list != &c.ready || k.sends != 0 {
			t.Error("it is sent")
		}
		c.conn.err = nil
		if c.pump(); k.list != &c.flight || k.sends != 1 || c.alarmAt == 0 {
			t.Error("it is not sent")
		}
	})
}

// TestReserve checks that part of the connection's window is reserved for urgent requests.
func TestReserve(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, _ := opened(t)
		c.conn.window, c.conn.reserve = 4, 1
		read := func(kind kind, stale bool) *call {
			k := &call{kind: kind, stale: stale}
			k.request.Body = &wire.Request_GetLock{GetLock: &wire.GetLockRequest{Name: "x", QueueLimit: 1}}
			c.submit(k)
			return k
		}
		for range 3 {
			read(kindRead, false)
		}
		ready, anywhere := read(kindRead, false), read(kindRead, true)
		if ready.sends+anywhere.sends != 0 || c.flight.n != 3 {
			t.Errorf("%d are under way", c.flight.n)
		}
		urgent, next := read(kindPing, false), read(kindPing, false)
		if urgent.sends != 1 || next.sends != 0 || c.flight.n != 4 {
			t.Errorf("%d are under way", c.flight.n)
		}
	})
}

// TestPauses checks that the pauses between attempts to reach a member grow, are random, and stay below a tenth of the
// shortest TTL.
func TestPauses(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, _ := still(t)
		for name, most := range map[time.Duration]time.Duration{silenceMax: connectMost, shortTTL / 3: shortTTL / 10} {
			c.silence = name
			for failed := 1; failed <= 40; failed++ {
				for range 20 {
					if got := c.search.pause(failed); got <= 0 || got >= min(most, connectFirst<<min(failed, 10)+time.Millisecond) {
						t.Errorf("a pause of %v after %d failures, want less than %v", got, failed, most)
					}
				}
			}
		}
	})
}

// TestWhichConnectionsSucceed checks that a connection counts as a success if it brought an answer and
// lasted long enough.
func TestWhichConnectionsSucceed(t *testing.T) {
	for name, test := range map[string]struct {
		useful bool
		lasted time.Duration
		want   bool
	}{
		"useful and long":    {true, 2 * steady, true},
		"just long enough":   {true, steady, true},
		"useful and short":   {true, steady - 1, false},
		"long and of no use": {false, time.Hour, false},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			cn := c.conn
			k := s.asked("x")
			c.prepare(k)
			c.flight.push(k)
			c.byID.add(k)
			s.sendHeartbeat()
			sendHeartbeat, m := s.heartbeat, c.search.of(cn)
			m.failed, cn.useful = 5, test.useful
			time.Sleep(test.lasted)
			cn.err = errors.New("left")
			c.drop(cn, errors.New("cut"))
			if got := m.failed; got != map[bool]int{true: 0, false: 6}[test.want] || !test.want && m.askAt <= c.clock.Now() {
				t.Errorf("%s: %d failures in a row", name, got)
			}
			if c.conn != nil || s.conn != nil || s.heartbeat != nil || !sendHeartbeat.finished {
				t.Errorf("%s: it is used still", name)
			}
			if k.finished || k.list != &s.parked || c.flight.n+c.byID.n != 0 || !strings.Contains(c.lastErr.Error(), "n2:7400: left") {
				t.Errorf("%s: what was under way is over %v, %v", name, k.finished, c.lastErr)
			}
			select {
			case <-c.need:
			default:
				t.Errorf("%s: the next one is not made", name)
			}
		})
	}
}

// TestBeginBelieves checks that a node's report about the leader is accepted, even with a lower term if the
// node leads or belongs to another cluster.
func TestBeginBelieves(t *testing.T) {
	for name, test := range map[string]struct {
		leads   bool
		cluster string
		hint    *wire.LeaderHint
		want    string
		term    uint64
	}{
		"a later one":            {false, "c", hintOf("n3", 6), "n3", 6},
		"an earlier one":         {false, "c", hintOf("n3", 4), "n1", 5},
		"it leads, earlier":      {true, "c", hintOf("n2", 4), "n2", 4},
		"another cluster":        {false, "d", hintOf("n3", 2), "n3", 2},
		"another cluster, later": {false, "d", hintOf("n3", 9), "n3", 9},
		"nobody":                 {false, "c", &wire.LeaderHint{}, "n1", 5},
		"another, and nobody":    {false, "d", &wire.LeaderHint{}, "", 0},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, cn := still(t)
			cn.leads, cn.cluster, cn.leader, cn.term = test.leads, test.cluster, test.hint, test.hint.GetTerm()
			c.begin(cn)
			if c.leader.GetId() != test.want || c.leader.GetTerm() != test.term || c.cluster != test.cluster {
				t.Errorf("%s: %v of %q", name, c.leader, c.cluster)
			}
		})
	}
}

// TestProcessStart checks that the start of the process is taken from the system where the system reports
// it.
func TestProcessStart(t *testing.T) {
	start := time.UnixMilli(processStart())
	if d := time.Since(start); d < -2*time.Second || d > time.Hour {
		t.Errorf("%v", start)
	}
}
