package chaos

import (
	"errors"
	"sync"

	"github.com/quorumlock/quorumlock/client/fence"
)

// counter is what a lock protects: its holders read it, and later write what they read plus one. It rejects writes with
// an older token than it has seen.
type counter struct {
	name  string
	guard fence.Guard

	mu              sync.Mutex // guards the fields below
	value           int
	accepted, stale int // writes
}

// read announces the token, so that no earlier holder can write afterwards.
func (c *counter) read(token uint64) (value int, err error) {
	err = c.guard.Do(c.name, token, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		value = c.value
		return nil
	})
	return value, err
}

func (c *counter) write(token uint64, value int) error {
	err := c.guard.Do(c.name, token, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.value, c.accepted = value, c.accepted+1
		return nil
	})
	if errors.Is(err, fence.ErrStaleToken) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stale++
		return nil
	}
	return err
}

// increment reads the counter, and writes it after meanwhile. A token that is too old to read does nothing.
func (c *counter) increment(token uint64, meanwhile func()) error {
	value, err := c.read(token)
	meanwhile()
	switch {
	case errors.Is(err, fence.ErrStaleToken):
		return nil
	case err != nil:
		return err
	}
	return c.write(token, value+1)
}

// counts returns the accepted and the rejected writes, and how many of the accepted ones were lost.
func (c *counter) counts() (accepted, stale, lost int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.accepted, c.stale, c.accepted - c.value
}
