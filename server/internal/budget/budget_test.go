package budget

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// holder opens an account. The result reports whether it was cut.
func holder(t *testing.T, b *Budget, bytes int) (*Account, *bool) {
	t.Helper()
	cut := new(bool)
	a, err := b.Open(bytes, func() { *cut = true })
	if err != nil {
		t.Fatal(err)
	}
	return a, cut
}

func TestLargestIsCut(t *testing.T) {
	b := New(100)
	small, smallCut := holder(t, b, 10)
	_, mediumCut := holder(t, b, 30)
	large, largeCut := holder(t, b, 50)
	if err := small.Reserve(20); err != nil {
		t.Error(err)
	}
	if *smallCut || *mediumCut || !*largeCut {
		t.Errorf("cut: small %v, medium %v, large %v", *smallCut, *mediumCut, *largeCut)
	}
	if err := large.Reserve(1); !errors.Is(err, ErrExhausted) {
		t.Errorf("a connection that is being cut gets more: %v", err)
	}
	large.Release(50)
	large.Close()
	large.Close()
	if b.Used() != 60 || len(b.accounts) != 2 {
		t.Errorf("%d bytes are held by %d, want 60 by 2", b.Used(), len(b.accounts))
	}
}

func TestLargestConsumerIsRefused(t *testing.T) {
	b := New(100)
	a, cut := holder(t, b, 60)
	_, other := holder(t, b, 30)
	if err := a.Reserve(20); !errors.Is(err, ErrExhausted) || *cut || *other {
		t.Errorf("got %v; cut: %v, the other %v", err, *cut, *other)
	}
	if err := a.Reserve(10); err != nil {
		t.Error(err)
	}
	if _, err := b.Open(95, func() {}); !errors.Is(err, ErrExhausted) {
		t.Errorf("a newcomer who wants more than anybody holds: %v", err)
	}
	a.Release(70)
	if b.Used() != 30 || len(b.accounts) != 2 {
		t.Errorf("%d bytes are held by %d", b.Used(), len(b.accounts))
	}
}

// TestOnlyLargerConsumersAreCut verifies that an account is cut only if it holds more than the requesting one
// would, and that the requesting one is never cut.
func TestOnlyLargerConsumersAreCut(t *testing.T) {
	b := New(100)
	asks, asksCut := holder(t, b, 40)
	_, otherCut := holder(t, b, 50)
	if err := asks.Reserve(11); !errors.Is(err, ErrExhausted) || *asksCut || *otherCut {
		t.Errorf("for 51 bytes beside 50: %v, cut %v and %v", err, *asksCut, *otherCut)
	}
	if err := asks.Reserve(10); err != nil || *otherCut {
		t.Errorf("what is free: %v", err)
	}
	asks.Release(1)
	if err := asks.Reserve(2); !errors.Is(err, ErrExhausted) || *asksCut || *otherCut {
		t.Errorf("for 51 bytes beside 50: %v, cut %v and %v", err, *asksCut, *otherCut)
	}
	asks.Release(10)
	small, _ := holder(t, b, 11)
	if err := small.Reserve(39); !errors.Is(err, ErrExhausted) || *otherCut {
		t.Errorf("for as much as the largest has: %v", err)
	}
	if err := small.Reserve(38); err != nil || !*otherCut {
		t.Errorf("for less than the largest has: %v", err)
	}
}

func TestNoBudget(t *testing.T) {
	var none *Budget
	a, err := none.Open(1<<40, nil)
	if err != nil || a.Reserve(1<<40) != nil {
		t.Error("there is a bound without a budget")
	}
	a.Release(1)
	if held := a.Held(); held != 0 {
		t.Errorf("%d bytes are held of no budget", held)
	}
	a.Close()
}

func TestRegisteredOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	if err := New(1).Register(registry); err != nil {
		t.Error(err)
	}
	if err := New(1).Register(registry); err == nil {
		t.Error("two budgets have the same metrics")
	}
}

// TestRandomHolders verifies for random operations that no more than the limit is held, and that an account
// that is cut was the largest one.
func TestRandomHolders(t *testing.T) {
	const limit = 10_000
	random := rand.New(rand.NewPCG(1, 2))
	b := New(limit)
	held := map[*Account]int{}
	cut := func(a **Account) func() {
		return func() {
			for other, bytes := range held {
				if bytes > held[*a] {
					t.Errorf("cut with %d bytes, another one has %d", held[*a], held[other])
				}
			}
			delete(held, *a)
		}
	}
	for range 20_000 {
		var all []*Account
		for _, a := range b.accounts {
			all = append(all, a)
		}
		slices.SortFunc(all, func(x, y *Account) int { return held[x] - held[y] })
		bytes := random.IntN(300)
		switch what := random.IntN(8); {
		case what == 0 || len(all) == 0:
			a := new(*Account)
			if opened, err := b.Open(0, cut(a)); err == nil {
				*a = opened
				held[opened] = 0
			}
		case what == 1 && len(all) > 20:
			a := all[random.IntN(len(all))]
			a.Close()
			delete(held, a)
		case what < 4:
			a := all[random.IntN(len(all))]
			a.Release(bytes)
			held[a] = max(0, held[a]-bytes)
		default:
			a := all[random.IntN(len(all))]
			if a.Reserve(bytes) == nil {
				held[a] += bytes
			}
		}
		sum := 0
		for _, bytes := range held {
			sum += bytes
		}
		if int64(sum) != b.Used() || sum > limit || len(held) != len(b.accounts) {
			t.Fatalf("%d bytes are held by %d, the budget has %d by %d", sum, len(held), b.Used(), len(b.accounts))
		}
	}
	if cuts, refusals := b.counts(); cuts == 0 || refusals == 0 {
		t.Errorf("%d cuts, %d refusals", cuts, refusals)
	}
}
