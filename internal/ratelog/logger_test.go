package ratelog

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/test/bubble"
)

// TestRate verifies how many messages are logged, and how many each first one of them says were not.
func TestRate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New(hclog.New(&hclog.LoggerOptions{Output: &out}))
		for i, step := range []struct {
			after      time.Duration
			calls      int
			logged     int
			suppressed string
		}{
			{0, Burst, Burst, ""},
			{0, 3, 0, ""},
			{Period - time.Microsecond, 1, 0, ""},
			{time.Microsecond, 2, 1, "suppressed=4"},
			{Period, 2, 1, "suppressed=1"},
			{2 * Period, 3, 2, "suppressed=1"},
			{time.Hour, Burst + 1, Burst, "suppressed=1"},
			{time.Hour, 1, 1, "suppressed=1"},
			{0, Burst, Burst - 1, ""},
		} {
			time.Sleep(step.after)
			out.Reset()
			for range step.calls {
				l.Warn("refused", "remote", "h:1")
			}
			text := out.String()
			if n := strings.Count(text, "refused: remote=h:1"); n != step.logged {
				t.Errorf("step %d: %d were logged, want %d", i, n, step.logged)
			}
			if n := strings.Count(text, "suppressed="); n > 1 || n == 1 != (step.suppressed != "") || !strings.Contains(text, step.suppressed) {
				t.Errorf("step %d: want %q in\n%s", i, step.suppressed, text)
			}
		}
	})
}

func TestWrite(t *testing.T) {
	var out bytes.Buffer
	l := New(hclog.New(&hclog.LoggerOptions{Output: &out}))
	line := []byte(" http: TLS handshake error\x1b[2J\n")
	if n, err := l.Write(line); n != len(line) || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if text := out.String(); !strings.Contains(text, `[WARN]  an HTTP server reports a problem: detail="http: TLS handshake error\x1b[2J"`) {
		t.Errorf("%q", text)
	}
}

// TestRepeatedMessages verifies that the same message is repeated rarely, and a different one is
// logged immediately.
func TestRepeatedMessages(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := NewRepeated(hclog.New(&hclog.LoggerOptions{Output: &out}))
		want := func(when string, first, second int) {
			t.Helper()
			if strings.Count(out.String(), "first") != first || strings.Count(out.String(), "second") != second {
				t.Errorf("%s: %s", when, out.String())
			}
		}
		r.Warn("first")
		r.Warn("first")
		want("at once", 1, 0)
		time.Sleep(RepeatInterval - 1)
		r.Warn("first")
		want("within a minute", 1, 0)
		time.Sleep(time.Nanosecond)
		r.Warn("first")
		want("after a minute", 2, 0)
		r.Warn("second")
		r.Warn("first")
		want("changed", 3, 1)
	})
}
