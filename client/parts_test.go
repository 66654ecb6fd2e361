package client

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestTimesThatAreRefused checks that times that are not whole milliseconds or do not fit are refused, not
// changed.
func TestTimesThatAreRefused(t *testing.T) {
	const most = math.MaxUint32 * time.Millisecond
	for name, test := range map[string]struct {
		d                    time.Duration
		session, lease, wait bool // whether it is accepted
		ms                   uint32
	}{
		"none":        {0, true, true, true, 0},
		"negative":    {-1, false, false, false, 0},
		"less":        {-time.Second, false, false, false, 0},
		"a second":    {time.Second, true, true, true, 1000},
		"a part":      {time.Second + 1, false, false, true, 1001},
		"nearly":      {time.Second + time.Millisecond - 1, false, false, true, 1001},
		"the longest": {most, true, true, true, math.MaxUint32},
		"too long":    {most + time.Millisecond, false, false, false, 0},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, _ := opened(t)
			c.conn.leads = false
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, err := c.NewSession(ctx, SessionOptions{TTL: test.d})
			if refused := errors.Is(err, ErrInvalidArgument); refused == test.session {
				t.Errorf("%s: a session: %v", name, err)
			}
			ms, err := leaseMillis(test.d)
			if errors.Is(err, ErrInvalidArgument) == test.lease || test.lease && ms != test.ms {
				t.Errorf("%s: a lease: %d, %v", name, ms, err)
			}
			ms, err = millis("wait", test.d)
			if errors.Is(err, ErrInvalidArgument) == test.wait || test.wait && ms != test.ms {
				t.Errorf("%s: a wait: %d, %v", name, ms, err)
			}
		})
	}
}

// TestOpened checks that the answer to an open creates a session only if it has an id that is not known
// yet, and a TTL.
func TestOpened(t *testing.T) {
	for name, test := range map[string]struct {
		status    wire.Status_Code
		id        uint64
		ttl       uint32
		abandoned bool
		change    func(c *Client)
		opens     bool
	}{
		"a session":       {wire.Status_OK, 8, 9000, false, nil, true},
		"refused":         {wire.Status_INVALID_ARGUMENT, 8, 9000, false, nil, false},
		"without an id":   {wire.Status_OK, 0, 9000, false, nil, false},
		"without a TTL":   {wire.Status_OK, 8, 0, false, nil, false},
		"another's":       {wire.Status_OK, 7, 9000, false, nil, false},
		"nobody's":        {wire.Status_OK, 8, 9000, true, nil, true},
		"a longer TTL":    {wire.Status_OK, 8, 60_000, false, nil, true},
		"with two before": {wire.Status_OK, 8, 9000, false, func(c *Client) { c.silence = time.Second }, true},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, _ := opened(t)
			if test.change != nil {
				test.change(c)
			}
			silence := c.silence
			s := newSession(c)
			k := &call{kind: kindOpen, opening: s, abandoned: test.abandoned, sentAt: c.clock.Now()}
			c.opened(c.conn, k, &wire.Result{Status: test.status, Session: &wire.SessionState{SessionId: test.id, TtlMs: test.ttl}})
			if !k.finished || (k.err == nil) != test.opens || (c.sessions[8] == s) != test.opens {
				t.Errorf("%s: %v, kept %v", name, k.err, c.sessions[8] == s)
			}
			if !test.opens {
				if c.silence != silence || s.place >= 0 {
					t.Errorf("%s: it is a session all the same", name)
				}
				return
			}
			lives := time.Duration(test.ttl) * time.Millisecond
			if s.id != test.id || s.ttl != lives || s.conn != c.conn || c.silence != min(silence, lives/3) {
				t.Errorf("%s: %d, TTL %v, silence %v", name, s.id, s.ttl, c.silence)
			}
			if closing := s.closing != nil; closing != test.abandoned || (s.state == Active) == test.abandoned {
				t.Errorf("%s: closed at once: %v, %v", name, closing, s.state)
			}
		})
	}
}

// TestLose checks that all state of a session ends with it, and that a closed session is kept until the
// cluster knows.
func TestLose(t *testing.T) {
	for name, closing := range map[string]bool{"lost": false, "closed": true} {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			h := newHold(s, "x", 9, 9, 9)
			h.held.bound(c.clock.Now()+time.Second, 9)
			waits, open := s.queued("a", 3), s.asked("b")
			unsent := &newAcquire(context.Background(), c).call
			s.addCall(unsent)
			parked := &newAcquire(context.Background(), c).call
			s.addCall(parked)
			s.parked.push(parked)
			s.sendHeartbeat()
			sendHeartbeat := s.heartbeat
			reason := ErrExpired
			if closing {
				reason = ErrClosed
				s.startClose(ErrClosed)
			} else {
				s.lose(reason)
				s.lose(ErrForced)
			}
			for what, k := range map[string]*call{"a wait": waits, "one in flight": open, "one unsent": unsent, "one parked": parked, "the heartbeat": sendHeartbeat} {
				if !k.finished || !errors.Is(k.err, reason) {
					t.Errorf("%s: %s is over %v, with %v", name, what, k.finished, k.err)
				}
			}
			if h.ended != reason || s.state != Lost || s.reason != reason || s.holds.count()+len(s.waits)+s.parked.n+len(s.bounded) != 0 || s.boundAt != never {
				t.Errorf("%s: the hold ended with %v, %+v", name, h.ended, s)
			}
			select {
			case <-s.Lost():
			default:
				t.Errorf("%s: nobody is told", name)
			}
			if kept := c.sessions[7] == s; kept != closing || (s.place >= 0) != closing || (s.closing != nil) != closing {
				t.Errorf("%s: it is kept: %v", name, kept)
			}
			if !closing {
				return
			}
			if s.closing.list != &c.flight || s.conn != c.conn || s.wakeAt != s.deadline() {
				t.Error("the cluster is not told")
			}
			k := s.closing
			s.closeAnswered(k, wire.Status_UNAVAILABLE)
			if k.finished {
				t.Error("a close that was refused is not repeated")
			}
			s.gone(ErrExpired)
			if !k.finished || k.err != nil || c.sessions[7] != nil || s.place >= 0 {
				t.Errorf("a session that is gone is closed, and %v", k.err)
			}
		})
	}
}

// TestCloseThatIsNeverAnswered checks that a session that could not be closed in time is left to its TTL.
func TestCloseThatIsNeverAnswered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := opened(t)
		s.startClose(ErrClosed)
		k := s.closing
		s.tick(s.deadline())
		if !errors.Is(k.err, ErrUncertain) || c.sessions[7] != nil || len(c.schedule) != 0 {
			t.Errorf("%v, kept %v", k.err, c.sessions[7] != nil)
		}
	})
}

// TestNewLease checks the request for a lease, and the options that a lease cannot have.
func TestNewLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, _ := opened(t)
		if _, _, err := c.newLease(one("x"), optionsOf([]LeaseOption{WithLockDelay(-1)})); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("a lease with a bad delay: %v", err)
		}
		for name, test := range map[string]struct {
			opts    []LeaseOption
			ttl, ms uint32
			forever bool
		}{
			"the default": {nil, 15_000, 0, true},
			"a TTL":       {[]LeaseOption{WithTTL(time.Minute)}, 60_000, 0, true},
			"a wait":      {[]LeaseOption{WithWait(time.Second)}, 15_000, 1000, false},
			"try":         {[]LeaseOption{WithTry()}, 15_000, 0, false},
			"no wait":     {[]LeaseOption{WithTry(), WithWait(0)}, 15_000, 0, false},
		} {
			l, r, err := c.newLease([]LockSpec{{Name: "x"}, {Name: "y", Limit: 2, Permits: 1}}, optionsOf(append(test.opts, WithShared(), WithLockDelay(time.Second))))
			ok(t, err)
			a := r.GetAcquire()
			if r.GetTtlMs() != test.ttl || a.GetWaitMs() != test.ms || a.GetWaitForever() != test.forever || a.GetOwner() != 0 || a.GetLockDelayMs() != 1000 {
				t.Errorf("%s: %v", name, r)
			}
			if len(l.secret) != secretSize || slices.Max(l.secret) == 0 || string(r.GetSecret()) != string(l.secret) || l.ttl != time.Duration(test.ttl)*time.Millisecond {
				t.Errorf("%s: %+v", name, l)
			}
			if a.GetLocks()[0].GetMode() != wire.Mode_SHARED || a.GetLocks()[1].GetLimit() != 2 || !slices.Equal(l.Names(), []string{"x", "y"}) {
				t.Errorf("%s: %v", name, a.GetLocks())
			}
		}
		secret := []byte(strings.Repeat("s", 16))
		l, _, err := c.newLease(one("x"), optionsOf([]LeaseOption{WithSecret(secret)}))
		ok(t, err)
		if secret[0] = 'x'; l.Secret()[0] != 's' {
			t.Error("the secret is the caller's to change")
		}
	})
}

// TestLeaseTimes checks that the shortest time counts while extensions are in flight, until one succeeds.
func TestLeaseTimes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, _ := opened(t)
		now := c.clock.Now()
		l := &Lease{client: c, until: now + time.Minute}
		if got := l.Remaining(); got != time.Minute {
			t.Errorf("%v", got)
		}
		l.pending = []time.Duration{now + time.Hour, now + time.Second}
		if got := l.Remaining(); got != time.Second {
			t.Errorf("%v, want the shortest", got)
		}
		time.Sleep(2 * time.Second)
		if got := l.Remaining(); got != 0 {
			t.Errorf("%v after its end", got)
		}
		if l.over, l.pending = true, nil; l.Remaining() != 0 {
			t.Error("it is over, and lasts")
		}
		l = &Lease{client: c, ttl: 10 * time.Second}
		for code, granted := range map[wire.Status_Code]bool{wire.Status_GRANTED: true, wire.Status_OK: false, wire.Status_TIMEOUT: false} {
			k := &call{kind: kindLease, firstAt: time.Second, sentAt: time.Minute}
			k.response = respond(&wire.Result{Status: code, HoldId: 4, Token: 5, SessionId: 6})
			l.id, l.token, l.session, l.until = 0, 0, 0, 0
			l.granted(k)
			if (l.ID() == 4 && l.Token() == 5 && l.Session() == 6 && l.until == time.Second+10*time.Second-100*time.Millisecond) != granted || granted == (l.id == 0) {
				t.Errorf("%v: %+v", code, l)
			}
			k.err = ErrMismatchedAnswer
			l.id = 0
			if l.granted(k); l.id != 0 {
				t.Errorf("%v: granted with an error", code)
			}
		}
	})
}

// TestStartOf checks that the start of the process is parsed whatever the name of the program.
func TestStartOf(t *testing.T) {
	stat := func(name string) string {
		return "17 (" + name + ") S 1 17 17 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 12345 99 98"
	}
	const system = "cpu 1 2 3\nbtime 1700000000\nprocesses 7\n"
	for name, test := range map[string]struct {
		stat, system string
		want         int64
	}{
		"plain":        {stat("qlock"), system, 1700000123450},
		"odd name":     {stat("a) S 1 (b"), system, 1700000123450},
		"last line":    {stat("q"), "x\nbtime 1700000000", 1700000123450},
		"twenty":       {"17 (q) S 1 17 17 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 12345", system, 1700000123450},
		"nineteen":     {"17 (q) S 1 17 17 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0", system, 0},
		"nothing":      {"", "", 0},
		"no boot time": {stat("q"), "cpu 1 2 3\n", 0},
		"odd boot":     {stat("q"), "x\nbtime soon\n", 0},
		"odd ticks":    {strings.Replace(stat("q"), "12345", "early", 1), system, 0},
	} {
		if got, ok := startOf(test.stat, test.system); ok != (test.want != 0) || ok && got != test.want {
			t.Errorf("%s: %d, %v, want %d", name, got, ok, test.want)
		}
	}
}

// TestNumberedPlaces checks that a few calls need nothing but their slots, and that slots are added only if
// they run short.
func TestNumberedPlaces(t *testing.T) {
	c := newNumbered()
	add := func(id uint64) *call {
		k := &call{}
		k.request.Id = id
		c.add(k)
		return k
	}
	for id := range uint64(initialSlots) {
		add(id)
	}
	if len(c.places) != initialSlots || len(c.others) != 0 || c.n != initialSlots {
		t.Errorf("%d places and %d others for %d", len(c.places), len(c.others), c.n)
	}
	add(initialSlots) // its slot is taken
	if len(c.places) != 2*initialSlots || len(c.others) != 0 {
		t.Errorf("%d places and %d others for %d", len(c.places), len(c.others), c.n)
	}
	c = newNumbered()
	first, second := add(1), add(1+initialSlots)
	if len(c.places) != initialSlots || len(c.others) != 1 {
		t.Errorf("%d places and %d others for two", len(c.places), len(c.others))
	}
	c.remove(first)
	if c.find(1) != nil || c.find(1+initialSlots) != second {
		t.Error("the other one is taken out")
	}
	c.remove(second)
	if c.find(1+initialSlots) != nil || len(c.others) != 0 || c.n != 0 {
		t.Error("it is kept")
	}
}

// TestOutcomeAtTheLastMoment checks that an outcome that arrives while its caller is leaving is returned,
// in either order.
func TestOutcomeAtTheLastMoment(t *testing.T) {
	over := func() context.Context {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx
	}
	bubble.Test(t, func(t *testing.T) {
		c, s := opened(t)
		for range 20 { // both are ready, and select picks one at random
			k := s.asked("x")
			k.done = make(chan struct{}, 1)
			c.fail(k, ErrNotAcquired)
			if hold, err := c.awaitWait(over(), k); hold != nil || !errors.Is(err, ErrNotAcquired) {
				t.Fatalf("%v, %v", hold, err)
			}
			read := &call{kind: kindRead, done: make(chan struct{}, 1)}
			c.fail(read, ErrNotFound)
			if err := c.await(over(), read); !errors.Is(err, ErrNotFound) {
				t.Fatal(err)
			}
			release := &call{kind: kindRelease, over: make(chan struct{})}
			c.fail(release, ErrNotHeld)
			if err := c.awaitOver(over(), release); !errors.Is(err, ErrNotHeld) {
				t.Fatal(err)
			}
		}
	})
}

// TestWaitThatEndsWithItsGrace checks that a caller whose cancelGrace passes at the moment its wait ends is
// not told that the outcome is unknown.
func TestWaitThatEndsWithItsGrace(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := opened(t)
		k := s.queued("x", 3)
		k.done = make(chan struct{}, 1)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		got := make(chan error, 1)
		go func() {
			_, err := c.awaitWait(ctx, k)
			got <- err
		}()
		time.Sleep(cancelGrace - 1)
		c.mu.Lock()
		time.Sleep(time.Nanosecond)
		for range 1000 {
			runtime.Gosched() // let it wait for the mutex
		}
		c.fail(k, ErrCancelled)
		c.unlock()
		if err := <-got; !errors.Is(err, context.Canceled) || errors.Is(err, ErrUncertain) {
			t.Error(err)
		}
		// If the wait continues, the caller gets ErrUncertain.
		k = s.queued("y", 3)
		if _, err := c.awaitWait(ctx, k); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrUncertain) || k.done != nil || !k.abandoned {
			t.Errorf("%v, %+v", err, k)
		}
	})
}

// TestUsable checks which error a hold returns when no request about it can be made.
func TestUsable(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, s := opened(t)
		h := newHold(s, "x", 9, 9, 9)
		if err := h.usable(); err != nil {
			t.Error(err)
		}
		for ended, want := range map[error]error{ErrReleased: ErrNotHeld, ErrForced: ErrForced, ErrHoldExpired: ErrHoldExpired} {
			if h.ended = ended; !errors.Is(h.usable(), want) {
				t.Errorf("%v after %v", h.usable(), ended)
			}
		}
		s.lose(ErrExpired)
		if !errors.Is(h.usable(), ErrExpired) {
			t.Errorf("%v of a lost session", h.usable())
		}
	})
}
