package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"unicode"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// hostile is a text that would start a line, control a terminal and reverse the text that follows. The
// cluster refuses its control characters, but a client must not rely on that.
const hostile = "a\nlevel=ERROR\x1b[2J\u202egnp\u200b\u2028\u0085"

// checkShown fails if a text contains a character that Printable would have escaped.
func checkShown(t *testing.T, what, text string) {
	t.Helper()
	for _, r := range text {
		if unicode.In(r, unicode.C, unicode.Z) && r != ' ' {
			t.Errorf("%s has a raw %U: %q", what, r, text)
		}
	}
	if !strings.Contains(text, `\u202egnp`) {
		t.Errorf("%s does not show the text: %q", what, text)
	}
}

func TestErrorsShowTextsEscaped(t *testing.T) {
	step := DeadlockStep{Lock: hostile, ClientName: hostile}
	for name, err := range map[string]error{
		"status":      &StatusError{StatusInternal, hostile},
		"deadlock":    &DeadlockError{Cycle: []DeadlockStep{step, step}},
		"no cycle":    &DeadlockError{Message: hostile},
		"compacted":   &CompactedError{Message: hostile},
		"forced":      forced(hostile),
		"locker":      &LockerError{hostile, ErrTimeout},
		"goodbye":     &transport.GoodbyeError{Message: hostile},
		"refused":     checkLocks([]*wire.LockRequest{{Name: hostile}}),
		"long":        checkLocks([]*wire.LockRequest{{Name: hostile + strings.Repeat("x", 600)}}),
		"semaphore":   func() error { _, err := (&Session{}).Semaphore(hostile, 0).Acquire(t.Context(), 1); return err }(),
		"log's error": shownError{fmt.Errorf("dial %s: %w", hostile, ErrTimeout)},
	} {
		checkShown(t, name, err.Error())
	}
	if err := (shownError{ErrTimeout}); !errors.Is(err, ErrTimeout) {
		t.Error("an error that is logged is not itself any more")
	}
}

// lines is a log handler that writes values unchanged.
type lines struct {
	slog.Handler
	to *[]string
}

func (l lines) Enabled(context.Context, slog.Level) bool { return true }

func (l lines) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.Value.String(); return true })
	*l.to = append(*l.to, line)
	return nil
}

func TestLogShowsTextsEscaped(t *testing.T) {
	var logged []string
	c := newClient(Config{Logger: slog.New(lines{to: &logged}), Clock: &testClock{}})
	c.say(slog.LevelWarn, "event", "lock", hostile)
	c.say(slog.LevelWarn, "event", "err", errors.New(hostile))
	ok(t, c.Close())
	if len(logged) != 2 {
		t.Fatalf("%d lines", len(logged))
	}
	for _, line := range logged {
		checkShown(t, "the log", line)
	}
}
