package sample

import (
	"errors"
	"testing"
)

// TestAdd leaves something to be desired: it forgets nothing that it has seen.
func TestAdd(t *testing.T) {
	c := &Counter{Limit: 1, Seen: map[string]bool{}}
	if err := c.Add("a"); err != nil || c.N != 1 {
		t.Fatal(c, err)
	}
	if err := c.Add("b"); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	if err := c.Add("a"); err != nil || c.N != 2 {
		t.Fatal(c, err)
	}
	c.Closed = true
	if err := c.Add("a"); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
}

func TestForget(t *testing.T) {
	c := &Counter{N: 2, Seen: map[string]bool{"a": true}}
	if left := c.Forget(""); left != -1 {
		t.Fatal(left)
	}
	if left := c.Forget("b"); left != 0 {
		t.Fatal(left)
	}
	if left := c.Forget("a"); left != 1 || c.N != 1 {
		t.Fatal(left, c)
	}
}
