package rpc

import (
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// The rate limit of connection errors in the log: a burst of complaintBurst, then one per complaintPeriod.
const (
	complaintBurst  = 20
	complaintPeriod = 200 * time.Millisecond
)

// complaints logs why connections ended, once for each. It is a token bucket, so that clients cannot fill the
// disk by opening bad connections, and it counts the messages it drops.
type complaints struct {
	log hclog.Logger
	now func() time.Time

	mu         sync.Mutex // guards the fields below
	tokens     int
	filled     time.Time
	suppressed int
}

func newComplaints(log hclog.Logger, now func() time.Time) *complaints {
	return &complaints{log: log, now: now, tokens: complaintBurst, filled: now()}
}

// warn logs the message unless the rate limit is exceeded.
func (c *complaints) warn(message string, args ...any) {
	swallowed, ok := c.take()
	if !ok {
		return
	}
	if swallowed > 0 {
		args = append(args, "not_logged_before", swallowed)
	}
	c.log.Warn(message, args...)
}

// take reports whether to log now, and how many messages were dropped since the last one logged.
func (c *complaints) take() (swallowed int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if n := int(now.Sub(c.filled) / complaintPeriod); n > 0 {
		c.tokens = min(c.tokens+n, complaintBurst)
		c.filled = now
	}
	if c.tokens == 0 {
		c.suppressed++
		return 0, false
	}
	c.tokens--
	swallowed, c.suppressed = c.suppressed, 0
	return swallowed, true
}
