package ratelog

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/time/rate"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Burst is the number of messages that may be logged at once. After that, one is logged in each Period.
const (
	Burst  = 20
	Period = 200 * time.Millisecond
)

// Logger logs warnings. It is safe for concurrent use.
type Logger struct {
	log        hclog.Logger
	limiter    *rate.Limiter
	suppressed atomic.Int64 // since the last message that was logged
}

// New returns a Logger that logs to log.
func New(log hclog.Logger) *Logger {
	return &Logger{log: log, limiter: rate.NewLimiter(rate.Every(Period), Burst)}
}

// Warn logs a message with the given keys and values, unless the rate is exceeded. The message after those that
// were not logged has their number under the key "suppressed".
func (l *Logger) Warn(message string, args ...any) {
	if !l.limiter.Allow() {
		l.suppressed.Add(1)
		return
	}
	if n := l.suppressed.Swap(0); n > 0 {
		args = append(args, "suppressed", n)
	}
	l.log.Warn(message, args...)
}

// Write logs a line of another logger. It implements io.Writer.
func (l *Logger) Write(line []byte) (int, error) {
	l.Warn("an HTTP server reports a problem", "detail", wire.PrintableLine(strings.TrimSpace(string(line))))
	return len(line), nil
}
