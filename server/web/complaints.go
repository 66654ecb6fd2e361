package web

import (
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Whoever can connect can make the port complain, but not fill the disk with it.
const (
	complaintsAtOnce = 20
	complaintEvery   = 200 * time.Millisecond
)

// complaints writes to the log what callers did wrong, so much at once and then so
// often.
type complaints struct {
	log hclog.Logger

	mu     sync.Mutex // guards what follows
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

// Write takes the lines of net/http's own log.
func (c *complaints) Write(line []byte) (int, error) {
	c.warn(wire.PrintableLine(strings.TrimSpace(string(line))))
	return len(line), nil
}
