package fence

import (
	"errors"
	"math"
	"sync"
	"testing"
)

func TestGuardRefusesLowerTokens(t *testing.T) {
	var g Guard
	for _, step := range []struct {
		resource string
		token    uint64
		want     error
	}{
		{"a", 5, nil},
		{"a", 5, nil}, // the same holder again
		{"a", 4, ErrStaleToken},
		{"b", 4, nil}, // another resource
		{"a", 6, nil},
		{"a", 5, ErrStaleToken},
		{"a", 0, ErrInvalidToken},
		{"a", math.MaxInt64 + 1, ErrInvalidToken},
		{"b", math.MaxInt64, nil},
	} {
		if err := g.Check(step.resource, step.token); !errors.Is(err, step.want) {
			t.Errorf("Check(%s, %d) = %v, want %v", step.resource, step.token, err, step.want)
		}
	}
	if a, b, c := g.Highest("a"), g.Highest("b"), g.Highest("c"); a != 6 || b != math.MaxInt64 || c != 0 {
		t.Errorf("highest: %d, %d, %d", a, b, c)
	}
	g.Forget("a")
	if err := g.Check("a", 1); err != nil {
		t.Error("after Forget:", err)
	}
}

func TestGuardRemembersTheTokenOfAFailedWrite(t *testing.T) {
	var g Guard
	failed := errors.New("disk full")
	if err := g.Do("a", 7, func() error { return failed }); err != failed {
		t.Fatal(err)
	}
	if err := g.Do("a", 6, func() error { t.Error("written"); return nil }); !errors.Is(err, ErrStaleToken) {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = g.Do("a", 8, func() error { panic("in a write") })
	}()
	if err := g.Check("a", 8); err != nil { // this would block forever if the panic had kept the resource locked
		t.Fatal(err)
	}
}

// TestGuardUnderConcurrency checks that the tokens written never decrease, whatever the order of the
// writers, and that no lower token passes after a higher one.
func TestGuardUnderConcurrency(t *testing.T) {
	const writers, writes = 16, 200
	var (
		g       Guard
		wg      sync.WaitGroup
		written []uint64 // guarded by g
		other   [writers]int
	)
	for i := range writers {
		wg.Go(func() {
			for n := range writes {
				token := uint64(1 + n*writers + (i*7+n*3)%writers)
				err := g.Do("shared", token, func() error {
					written = append(written, token)
					return nil
				})
				if err != nil && !errors.Is(err, ErrStaleToken) {
					t.Error(err)
				}
				if err := g.Do("own/"+string(rune('a'+i)), uint64(n+1), func() error { other[i]++; return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := 1; i < len(written); i++ {
		if written[i] < written[i-1] {
			t.Fatalf("%d was written after %d", written[i], written[i-1])
		}
	}
	if len(written) == 0 || g.Highest("shared") != written[len(written)-1] {
		t.Errorf("%d writes, highest token %d", len(written), g.Highest("shared"))
	}
	for i, n := range other {
		if n != writes {
			t.Errorf("writer %d came through %d times on its own resource", i, n)
		}
	}
}
