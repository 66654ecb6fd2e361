package ratelog

import (
	"time"

	"github.com/hashicorp/go-hclog"
)

// RepeatInterval is how often Repeated logs the same message.
const RepeatInterval = time.Minute

// Repeated logs warnings and errors about a condition that lasts: when the message changes, and then periodically. One goroutine
// uses it at a time.
type Repeated struct {
	log  hclog.Logger
	last string // the last message that was logged
	at   time.Time
}

// NewRepeated returns a Repeated that logs to log.
func NewRepeated(log hclog.Logger) *Repeated { return &Repeated{log: log} }

// Warn logs a message with the given keys and values, unless it logged the same message less than RepeatInterval ago.
func (r *Repeated) Warn(message string, args ...any) { r.record(hclog.Warn, message, args) }

// Error is Warn for errors.
func (r *Repeated) Error(message string, args ...any) { r.record(hclog.Error, message, args) }

func (r *Repeated) record(level hclog.Level, message string, args []any) {
	if message == r.last && time.Since(r.at) < RepeatInterval {
		return
	}
	r.last, r.at = message, time.Now()
	r.log.Log(level, message, args...)
}
