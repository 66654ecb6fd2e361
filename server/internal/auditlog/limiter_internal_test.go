package auditlog

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestDenialsAreLimited denies one caller again and again, and looks at what another one of the same kind gets.
func TestDenialsAreLimited(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := newLimiter()
		for i, step := range []struct {
			after   time.Duration
			key     string
			calls   int
			written int
			same    uint64
		}{
			{0, "ann", 5, 1, 0},
			{0, "bob", 1, 1, 0},
			{denialInterval - 1, "ann", 1, 0, 0},
			{1, "ann", 3, 1, 5},
			{denialInterval, "ann", 1, 1, 2},
			{0, "bob", 1, 1, 0},
		} {
			time.Sleep(step.after)
			written, same := 0, uint64(0)
			for range step.calls {
				if s, ok := l.allow(step.key, time.Now()); ok {
					written++
					same += s.same
				}
			}
			if written != step.written || same != step.same {
				t.Errorf("step %d: %d written, %d suppressed before", i, written, same)
			}
		}
	})
}

// TestManyCallersAreLimited floods a limiter with ever new callers: its memory and the lines in total are bounded, a
// caller that comes again is not forgotten, and no suppressed denial is lost.
func TestManyCallersAreLimited(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := newLimiter()
		written, counted, calls := 0, uint64(0), uint64(0)
		deny := func(key string) {
			calls++
			if s, ok := l.allow(key, time.Now()); ok {
				written++
				counted += 1 + s.same + s.others
			}
		}
		const seconds = 5
		for second := range seconds {
			for i := range 4 * maxDenied {
				deny(fmt.Sprint(second, " ", i))
				deny("flood")
			}
			time.Sleep(time.Second)
		}
		if most := denialRate * (seconds + 1); written > most {
			t.Errorf("%d lines, at most %d", written, most)
		}
		if len(l.all) > maxDenied || l.recent.Len() != len(l.all) {
			t.Errorf("%d callers are remembered", len(l.all))
		}
		left := l.others
		for _, e := range l.all {
			left += e.Value.(*recentCaller).suppressed
		}
		if counted+left != calls {
			t.Errorf("%d of %d denials are counted, and %d are still to be", counted, calls, left)
		}
	})
}

// TestWhatDenialsAreLimitedBy verifies which callers are one.
func TestWhatDenialsAreLimitedBy(t *testing.T) {
	for _, c := range []struct {
		identity, address, key string
		verified               bool
	}{
		{"ann", "10.0.0.1:7", "ann", true},
		{"anonymous", "10.0.0.1:7", "10.0.0.1", false},
		{"", "10.0.0.1:8", "10.0.0.1", false},
		{"", "[::ffff:10.0.0.1]:8", "::ffff:10.0.0.1", false},
		{"", "[2001:db8:1:2:3:4:5:6]:8", "2001:db8:1:2::/64", false},
		{"", "[2001:db8:1:2:ffff::1]:9", "2001:db8:1:2::/64", false},
		{"", "[fe80::1%eth0]:9", "fe80::/64", false},
		{"", "n1.example:9", "n1.example", false},
		{"", "pipe", "pipe", false},
	} {
		key, verified := keyOf(&wire.Caller{Identity: c.identity, Address: c.address})
		if key != c.key || verified != c.verified {
			t.Errorf("%q at %s: %q, %v", c.identity, c.address, key, verified)
		}
	}
}
