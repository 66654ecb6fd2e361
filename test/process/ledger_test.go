package process_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// grant is one acquire that the load was told of. Its times are those of this process's
// monotonic clock, since the ledger was begun.
type grant struct {
	lock            string
	hold            uint64
	token, revision uint64
	called          time.Duration // when it was asked for
	granted         time.Duration // when the answer was here
	ended           time.Duration // when its release was begun; 0 if it is held still
}

// ledger books grants.
type ledger struct {
	begun time.Time

	mu     sync.Mutex
	grants []grant
	faults []error
}

func newLedger() *ledger { return &ledger{begun: time.Now()} }

func (l *ledger) now() time.Duration { return time.Since(l.begun) }

func (l *ledger) book(g grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants = append(l.grants, g)
}

// fault books what must not happen.
func (l *ledger) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, fmt.Errorf(format, args...))
}

// since counts the grants from a moment on.
func (l *ledger) since(moment time.Duration) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.grants) - 1; i >= 0 && l.grants[i].granted >= moment; i-- {
		n++
	}
	return n
}

// gap is the longest time without a grant that ended after a moment.
func (l *ledger) gap(after time.Duration) (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	times := make([]time.Duration, 0, len(l.grants))
	for _, g := range l.grants {
		times = append(times, g.granted)
	}
	slices.Sort(times)
	for i := 1; i < len(times); i++ {
		if times[i] > after {
			longest = max(longest, times[i]-times[i-1])
		}
	}
	return longest
}

// check looks for contradictions among everything booked.
func (l *ledger) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.faults)
	for _, look := range []func([]grant) error{noOverlap, tokensFollowRevisions, tokensFollowTime} {
		all = append(all, look(slices.Clone(l.grants)))
	}
	return errors.Join(all...)
}

// noOverlap: a lock is granted again only after its release was begun, and with a greater
// token.
func noOverlap(grants []grant) error {
	slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.granted, b.granted) })
	last := map[string]grant{}
	for _, g := range grants {
		before, ok := last[g.lock]
		last[g.lock] = g
		switch {
		case !ok:
		case before.ended == 0 || before.ended > g.granted:
			return fmt.Errorf("two hold one lock: %+v and %+v", before, g)
		case before.token >= g.token:
			return fmt.Errorf("a later grant has no greater token: %+v after %+v", g, before)
		}
	}
	return nil
}

// tokensFollowRevisions: in the order of revisions, tokens of all locks together increase
// strictly, and no revision or hold comes twice.
func tokensFollowRevisions(grants []grant) error {
	slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.revision, b.revision) })
	holds := map[uint64]bool{}
	for i, g := range grants {
		if i > 0 && (grants[i-1].revision == g.revision || grants[i-1].token >= g.token) {
			return fmt.Errorf("tokens do not follow revisions: %+v after %+v", g, grants[i-1])
		}
		if holds[g.hold] {
			return fmt.Errorf("a hold was granted twice: %+v", g)
		}
		holds[g.hold] = true
	}
	return nil
}

// tokensFollowTime: what was asked for after another grant was acknowledged has a greater
// token, whichever the locks.
func tokensFollowTime(grants []grant) error {
	byAnswer := slices.SortedFunc(slices.Values(grants), func(a, b grant) int { return cmp.Compare(a.granted, b.granted) })
	slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.called, b.called) })
	var highest grant
	for _, g := range grants {
		for len(byAnswer) > 0 && byAnswer[0].granted < g.called {
			if byAnswer[0].token > highest.token {
				highest = byAnswer[0]
			}
			byAnswer = byAnswer[1:]
		}
		if highest.token >= g.token {
			return fmt.Errorf("a grant asked for later has no greater token: %+v after %+v", g, highest)
		}
	}
	return nil
}

func TestLedgerFindsContradictions(t *testing.T) {
	first := grant{lock: "a", hold: 1, token: 1, revision: 1, called: 1, granted: 2, ended: 5}
	second := grant{lock: "a", hold: 2, token: 2, revision: 3, called: 3, granted: 6, ended: 7}
	for name, test := range map[string]struct {
		change func(a, b *grant)
		want   string
	}{
		"fine":               {func(a, b *grant) {}, ""},
		"held still":         {func(a, b *grant) { a.ended = 0 }, "two hold one lock"},
		"granted too early":  {func(a, b *grant) { b.granted = 4 }, "two hold one lock"},
		"other locks may":    {func(a, b *grant) { b.granted, b.lock = 4, "b" }, ""},
		"same token":         {func(a, b *grant) { b.token = 1 }, "no greater token"},
		"lower, other lock":  {func(a, b *grant) { b.lock, a.token, a.revision = "b", 4, 4 }, "asked for later"},
		"against revisions":  {func(a, b *grant) { b.lock, b.called, a.revision = "b", 1, 4 }, "do not follow revisions"},
		"one revision twice": {func(a, b *grant) { b.revision = 1 }, "do not follow revisions"},
		"one hold twice":     {func(a, b *grant) { b.hold = 1 }, "granted twice"},
	} {
		a, b := first, second
		test.change(&a, &b)
		l := newLedger()
		l.book(b)
		l.book(a)
		switch err := l.check(); {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: found %v, want %q", name, err, test.want)
		}
	}
	l := newLedger()
	if l.fault("lost"); l.check() == nil {
		t.Error("a fault is no contradiction")
	}
}
