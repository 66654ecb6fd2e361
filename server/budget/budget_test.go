package budget

import (
	"errors"
	"testing"
)

// holder opens an account and says whether it was cut.
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

func TestWhoHoldsMostIsRefused(t *testing.T) {
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

func TestNoBudget(t *testing.T) {
	var none *Budget
	a, err := none.Open(1<<40, nil)
	if err != nil || a.Reserve(1<<40) != nil {
		t.Error("there is a bound without a budget")
	}
	a.Release(1)
	a.Close()
}
