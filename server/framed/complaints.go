package framed

import (
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// In a storm of bad connections so many are logged at once, and so many a second
// after that.
const (
	complaintBurst  = 20
	complaintPeriod = 200 * time.Millisecond
)

// complaints logs why connections ended, each once, without letting whoever opens
// connections fill the disk: it is a token bucket that counts what it swallows.
type complaints struct {
	log hclog.Logger
	now func() time.Time

	mu         sync.Mutex // guards what follows
	tokens     int
	filled     time.Time
	suppressed int
}

func newComplaints(log hclog.Logger, now func() time.Time) *complaints {
	return &complaints{log: log, now: now, tokens: complaintBurst, filled: now()}
}

// warn logs the message unless too many came before it.
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

// take reports whether to log now, and how many were not logged since the last.
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
