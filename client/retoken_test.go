package client

import (
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// aboutHolds are the requests about a hold, which carry its token.
var aboutHolds = map[string]func(h *Hold) *call{
	"release": func(h *Hold) *call { h.startRelease(); return &h.release.call },
	"value": func(h *Hold) *call {
		k := &call{kind: kindSetValue, hold: h}
		k.request.Body = &wire.Request_SetValue{SetValue: &wire.SetValue{HoldId: h.ID(), Token: h.Token()}}
		return sentCall(h, k)
	},
	"downgrade": func(h *Hold) *call { return sentCall(h, h.newDowngrade()) },
	"extend":    func(h *Hold) *call { return sentCall(h, h.newExtend(1000)) },
	"upgrade":   func(h *Hold) *call { return upgrading(h) },
}

func sentCall(h *Hold, k *call) *call {
	h.held.session.addCall(k)
	h.held.session.client.submit(k)
	return k
}

// upgrading returns an upgrade of the hold that is in flight.
func upgrading(h *Hold) *call {
	k := &upgradeCall{}
	k.kind, k.hold = kindUpgrade, h
	k.upgrade.HoldId, k.upgrade.Token = h.ID(), h.Token()
	k.body.Upgrade = &k.upgrade
	k.request.Body = &k.body
	h.held.extra().upgrades++
	k.after = func() { h.held.upgradeOver() }
	return sentCall(h, &k.call)
}

// answer answers a call with that status, as the node does.
func (c *Client) answer(k *call, code wire.Status_Code) {
	r := &wire.Result{Status: code, Revision: 50}
	if k.kind == kindUpgrade {
		r.Digest, r.Name = k.request.Digest(), k.firstLock()
	}
	if code == wire.Status_GRANTED {
		r.HoldId, r.Token = k.hold.ID(), 77
	}
	c.flight.remove(k)
	c.byID.remove(k)
	k.session.answered(c.conn, k, &wire.Response{Result: r})
	c.pump()
}

// TestRequestsOutliveTheirToken checks that a request about a hold that is refused for its token is sent
// again under a new number with the hold's current token. While an upgrade may change the token, it waits
// until the token is known.
func TestRequestsOutliveTheirToken(t *testing.T) {
	for name, ask := range aboutHolds {
		for _, known := range []bool{true, false} {
			bubble.Test(t, func(t *testing.T) {
				c, s := opened(t)
				h := newHold(s, "x", 9, 9, 9)
				h.held.mode = Shared
				up := upgrading(h)
				k := ask(h)
				number := k.request.Seq
				if known {
					c.answer(up, wire.Status_GRANTED)
				}
				c.answer(k, wire.Status_NOT_HELD)
				if !known {
					waits := len(h.held.rare.undecided) == 1 && k.list == nil
					if name != "upgrade" && !waits || k.finished && name != "upgrade" {
						t.Fatalf("%s: it waits for the token %v, over %v", name, waits, k.finished)
					}
					c.answer(up, wire.Status_GRANTED)
				}
				if name == "upgrade" && !known { // the token is not known to have changed
					if !errors.Is(k.err, ErrNotHeld) {
						t.Errorf("%s: %v", name, k.err)
					}
					return
				}
				if k.finished || k.list != &c.flight || tokenOf(k) != 77 || k.request.Seq == number {
					t.Fatalf("%s: over %v with %v, token %d, number %d after %d", name, k.finished, k.err, tokenOf(k), k.request.Seq, number)
				}
				if !up.finished || h.Token() != 77 || len(h.held.rare.undecided) != 0 {
					t.Errorf("%s: the upgrade is not over", name)
				}
			})
		}
	}
}

// TestRequestsAboutWhatIsNotHeld checks that NOT_HELD is final if the hold is gone or the token was right.
func TestRequestsAboutWhatIsNotHeld(t *testing.T) {
	for name, ask := range aboutHolds {
		for _, gone := range []error{nil, ErrHoldExpired} {
			bubble.Test(t, func(t *testing.T) {
				c, s := opened(t)
				h := newHold(s, "x", 9, 9, 9)
				k := ask(h)
				if h.held.gone = gone; gone != nil {
					h.held.token.Store(77)
				}
				c.answer(k, wire.Status_NOT_HELD)
				want := gone
				if gone == nil {
					want = ErrNotHeld
				}
				if !k.finished || !errors.Is(k.err, want) {
					t.Errorf("%s: over %v, with %v, want %v", name, k.finished, k.err, want)
				}
				if kept := s.holds.find(9) != nil; kept != (name == "upgrade") {
					t.Errorf("%s: the hold is kept: %v", name, kept)
				}
				if lost := h.ended != nil; lost == (name == "upgrade") {
					t.Errorf("%s: it ended with %v", name, h.ended)
				}
			})
		}
	}
	for k := kindRead; k <= kindPing; k++ {
		if tokenOf(&call{kind: k}) != 0 {
			t.Errorf("a request of kind %d without a hold has a token", k)
		}
	}
}

// TestRequestsThatHaveToGetThrough checks that requests that release or downgrade are repeated if a window
// is full, while those with a caller fail.
func TestRequestsThatHaveToGetThrough(t *testing.T) {
	for name, ask := range aboutHolds {
		for _, awaited := range []bool{false, true} {
			bubble.Test(t, func(t *testing.T) {
				c, s := opened(t)
				h := newHold(s, "x", 9, 9, 9)
				k := ask(h)
				if k.done = nil; awaited {
					k.done = make(chan struct{}, 1)
				}
				number := k.request.Seq
				c.answer(k, wire.Status_RESOURCE_EXHAUSTED)
				again := name == "release" || name == "downgrade" && !awaited
				if (k.list == &c.stalled) != again || again == (k.request.Seq == number) || k.finished == again {
					t.Errorf("%s, awaited %v: again %v, number %d after %d", name, awaited, k.list == &c.stalled, k.request.Seq, number)
				}
				if !again && !errors.Is(k.err, ErrResourceExhausted) {
					t.Errorf("%s: %v", name, k.err)
				}
				if s.holds.find(9) == nil {
					t.Errorf("%s: a hold that was not given back is forgotten", name)
				}
			})
		}
	}
}

// TestReleaseAnswers checks that a refused release can be repeated, and that a successful one cannot.
func TestReleaseAnswers(t *testing.T) {
	for code, want := range map[wire.Status_Code]struct{ released, kept, again bool }{
		wire.Status_OK:       {true, false, false},
		wire.Status_NOT_HELD: {false, false, false},
		wire.Status_INTERNAL: {false, true, true},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			h := newHold(s, "x", 9, 9, 9)
			h.startRelease()
			k := &h.release.call
			c.answer(k, code)
			if h.released != want.released || (s.holds.find(9) != nil) != want.kept || !k.finished || (k.err == nil) != want.released {
				t.Errorf("%v: released %v, kept %v, %v", code, h.released, s.holds.find(9) != nil, k.err)
			}
			if again := h.release == nil && !h.released; again != want.again {
				t.Errorf("%v: it can be asked for again: %v", code, again)
			}
			if h.Remaining() != 0 || h.Count() != 0 || h.usable() != ErrNotHeld {
				t.Errorf("%v: %v remain of %d, %v", code, h.Remaining(), h.Count(), h.usable())
			}
		})
	}
}

// TestReleaseOfOneOfSeveral checks that counted acquires are released one by one, and that the last release
// frees the lock.
func TestReleaseOfOneOfSeveral(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := opened(t)
		first := newHold(s, "x", 9, 9, 9)
		second := first.held.again()
		if first.Count() != 2 || first.Remaining() == 0 {
			t.Errorf("%d, %v", first.Count(), first.Remaining())
		}
		first.startRelease()
		if first.Remaining() != 0 || second.Remaining() == 0 || second.Count() != 1 {
			t.Errorf("%v and %v remain", first.Remaining(), second.Remaining())
		}
		k := &first.release.call
		c.flight.remove(k)
		c.byID.remove(k)
		first.releaseAnswered(k, &wire.Result{Status: wire.Status_OK, Count: 1})
		if !first.released || s.holds.find(9) == nil || second.ended != nil || first.held.first != second || second.next != nil {
			t.Error("the other one is released, too")
		}
		second.startRelease()
		c.answer(&second.release.call, wire.Status_OK)
		if s.holds.find(9) != nil || second.held.first != nil {
			t.Error("it is kept")
		}
		// A hold without a caller is released as often as it counts.
		orphan := newHold(s, "y", 10, 10, 10)
		orphan.held.orphan = true
		orphan.startRelease()
		k = &orphan.release.call
		c.flight.remove(k)
		c.byID.remove(k)
		orphan.releaseAnswered(k, &wire.Result{Status: wire.Status_OK, Count: 1})
		next := orphan.held.first
		if next == nil || next == orphan || next.release == nil {
			t.Fatal("an orphan is held on")
		}
		// Unless it was acquired once more in the meantime.
		mine := next.held.again()
		k = &next.release.call
		c.flight.remove(k)
		c.byID.remove(k)
		next.releaseAnswered(k, &wire.Result{Status: wire.Status_OK, Count: 1})
		if mine.release != nil || next.held.first != mine {
			t.Error("what was acquired is given back")
		}
	})
}

// TestChange checks that the mode of a hold is that of the latest revision.
func TestChange(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, s := opened(t)
		d := newHold(s, "x", 9, 9, 9).held
		d.change(Shared, 8)
		if d.mode != Exclusive {
			t.Error("an old word counts")
		}
		if d.change(Shared, 9); d.mode != Shared {
			t.Error("a word of the same revision does not count")
		}
		if d.change(Exclusive, 12); d.mode != Exclusive || d.changed != 12 {
			t.Errorf("%v since %d", d.mode, d.changed)
		}
	})
}

// TestUpgraded checks that the outcome of an upgrade sets the hold's mode and token if they are newer, and
// that it is undone if its caller has left.
func TestUpgraded(t *testing.T) {
	for name, test := range map[string]struct {
		abandoned, ended bool
		token            uint64 // before
		back             bool
		want             uint64
	}{
		"granted":                  {false, false, 9, false, 77},
		"abandoned":                {true, false, 9, true, 77},
		"abandoned, and no change": {true, false, 77, false, 77},
		"abandoned, released":      {true, true, 9, false, 77},
		"overtaken":                {false, false, 90, false, 90},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			h := newHold(s, "x", 9, test.token, 9)
			h.held.mode = Shared
			k := upgrading(h)
			k.abandoned = test.abandoned
			if test.ended {
				h.end(ErrReleased)
			}
			c.answer(k, wire.Status_GRANTED)
			back := false
			for _, k := range c.flight.all() {
				back = back || k.kind == kindDowngrade
			}
			if back != test.back || h.Token() != test.want || h.held.mode != Exclusive || k.err != nil || h.held.rare.upgrades != 0 {
				t.Errorf("%s: given back %v, token %d, %v", name, back, h.Token(), k.err)
			}
		})
	}
}

// TestExtendAnswered checks that an Extend bounds the hold from the first request that may have been
// applied, unless a later revision has set the bound.
func TestExtendAnswered(t *testing.T) {
	for name, test := range map[string]struct {
		ms       uint32
		revision uint64 // of the bound before; that of the answer is 50
		want     time.Duration
	}{
		"longer":           {60_000, 9, untilOf(3*time.Second, 60_000)},
		"at that revision": {60_000, 50, untilOf(3*time.Second, 60_000)},
		"overtaken":        {60_000, 51, 10 * time.Second},
		"of no time":       {0, 9, 10 * time.Second},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			h := newHold(s, "x", 9, 9, 9)
			h.held.bound(10*time.Second, test.revision)
			k := sentCall(h, h.newExtend(test.ms))
			k.firstAt = 3 * time.Second
			h.startExtend(k, test.ms)
			if pending := len(h.held.rare.extends); (pending == 1) != (test.ms > 0) {
				t.Errorf("%s: %d are pending", name, pending)
			}
			c.answer(k, wire.Status_OK)
			if got := h.held.deadline(); got != test.want || len(h.held.rare.extends) != 0 {
				t.Errorf("%s: it ends at %v, want %v", name, got, test.want)
			}
			if kept := h.held.rare.maxHold == test.ms; kept != (test.want != 10*time.Second || test.ms == 0) {
				t.Errorf("%s: max_hold %d", name, h.held.rare.maxHold)
			}
		})
	}
}
