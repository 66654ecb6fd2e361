package httpapi

import (
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// The rate limit of messages about callers: a burst of complaintsAtOnce, then one per complaintEvery. It
// keeps callers from filling the disk.
const (
	complaintsAtOnce = 20
	complaintEvery   = 200 * time.Millisecond
)

// complaints logs the errors of callers, with a rate limit.
type complaints struct {
	log hclog.Logger

	mu     sync.Mutex // guards the fields below
	left   int
	since  time.Time
	unsaid int
}

func newComplaints(log hclog.Logger) *complaints {
	return &complaints{log: log, left: complaintsAtOnce, since: time.Now()}
}

func (c *complaints) warn(message string, args ...any) {
	unsaid, ok := c.take(time.Now())
	if !ok {
		return
	}
	if unsaid > 0 {
		args = append(args, "left_unsaid", unsaid)
	}
	c.log.Warn(message, args...)
}

func (c *complaints) take(now time.Time) (unsaid int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if more := int(now.Sub(c.since) / complaintEvery); more > 0 {
		c.left = min(c.left+more, complaintsAtOnce)
		c.since = now
	}
	if c.left == 0 {
		c.unsaid++
		return 0, false
	}
	c.left--
	unsaid, c.unsaid = c.unsaid, 0
	return unsaid, true
}

// Write logs the lines of net/http's own error log.
func (c *complaints) Write(line []byte) (int, error) {
	c.warn(wire.PrintableLine(strings.TrimSpace(string(line))))
	return len(line), nil
}
