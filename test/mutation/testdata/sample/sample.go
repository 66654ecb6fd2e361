// Package sample has one place of each kind.
package sample

import (
	"errors"
	"fmt"
)

// Counter counts up to a limit.
type Counter struct {
	N, Limit int
	Seen     map[string]bool
	Closed   bool
}

// ErrFull is returned at the limit.
var ErrFull = errors.New("full")

// Add counts a name.
func (c *Counter) Add(name string) error {
	if c.Closed || c.N >= c.Limit && !c.Seen[name] {
		return fmt.Errorf("%s: %w", name, ErrFull)
	}
	c.Seen[name] = true
	c.N++
	return nil
}

// Forget forgets a name. The switch compares nothing.
func (c *Counter) Forget(name string) (left int) {
	switch {
	case name == "":
		left = -1
	case c.Seen[name]:
		delete(c.Seen, name)
		c.N -= 1
		left = c.N
	}
	return left
}

// Within nests comparisons that begin and end at the same place.
func Within(a, b, c int) bool {
	return a < b == (b <= c)
}
