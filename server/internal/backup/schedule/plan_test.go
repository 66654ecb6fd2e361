package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func parsed(t *testing.T, text string, began time.Time) *plan {
	t.Helper()
	schedule, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return &plan{schedule: schedule, began: began}
}

func at(text string) time.Time {
	t, err := time.Parse(time.DateTime, text)
	if err != nil {
		panic(err)
	}
	return t
}

func saved(t time.Time) *wire.SavedBackup { return &wire.SavedBackup{UnixMs: t.UnixMilli()} }

// TestDue verifies when a backup is due, whoever made the last one.
func TestDue(t *testing.T) {
	for name, c := range map[string]struct {
		schedule, last, now, want string
	}{
		"at night":                     {"30 2 * * *", "2026-11-25 02:30:00", "2026-11-25 12:00:00", "2026-11-26 02:30:00"},
		"missed, by a day":             {"30 2 * * *", "2026-11-25 02:30:00", "2026-11-27 12:00:00", "2026-11-26 02:30:00"},
		"daily":                        {"@daily", "2026-11-25 00:00:01", "2026-11-25 00:00:02", "2026-11-26 00:00:00"},
		"in another zone":              {"CRON_TZ=America/New_York 30 2 * * *", "2026-11-25 02:30:00", "2026-11-25 03:00:00", "2026-11-25 07:30:00"},
		"every hour":                   {"@every 1h", "2026-11-25 02:30:00", "2026-11-25 02:31:00", "2026-11-25 03:30:00"},
		"none yet":                     {"@daily", "", "2026-11-25 02:31:00", "2026-11-24 00:00:00"},
		"clocks that differ a little":  {"@every 1h", "2026-11-25 02:30:30", "2026-11-25 02:30:00", "2026-11-25 03:30:30"},
		"a last one in the far future": {"@every 1h", "2027-11-25 02:30:00", "2026-11-25 02:30:00", "2026-11-25 03:30:00"},
		"on the time itself":           {"30 2 * * *", "2026-11-25 02:30:00", "2026-11-25 02:30:00", "2026-11-26 02:30:00"},
	} {
		p := parsed(t, c.schedule, at("2026-11-24 00:00:00"))
		var last *wire.SavedBackup
		if c.last != "" {
			last = saved(at(c.last))
		}
		if got := p.due(last, at(c.now)); !got.Equal(at(c.want)) {
			t.Errorf("%s: due at %v, want %v", name, got.UTC(), c.want)
		}
	}
}

// TestStepOfTheClock verifies that a clock that was a year ahead delays no backup by more than one interval.
func TestStepOfTheClock(t *testing.T) {
	p := parsed(t, "@every 1h", at("2026-11-24 00:00:00"))
	last := saved(at("2027-11-25 02:00:00"))
	for now, want := range map[string]time.Duration{"2026-11-25 02:00:00": time.Hour} {
		if got := p.wait(last, at(now)); got != want {
			t.Errorf("at %s it waits %v, want %v", now, got, want)
		}
	}
	if got := p.wait(last, at("2026-11-25 02:59:00")); got != time.Minute {
		t.Errorf("later it waits %v", got)
	}
	if got := p.wait(last, at("2026-11-26 02:00:00")); got != 0 {
		t.Errorf("after a step forward it waits %v", got)
	}
}

// TestPauses verifies that failures are followed by growing pauses, that a success ends them, and when a backup is
// overdue.
func TestPauses(t *testing.T) {
	p, now := parsed(t, "@every 1h", at("2026-11-25 02:00:00")), at("2026-11-25 03:00:00")
	last := saved(at("2026-11-25 02:00:00"))
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60} {
		want *= time.Minute
		if p.wait(last, now) != 0 {
			t.Fatalf("attempt %d waits %v", i, p.wait(last, now))
		}
		if got := p.failed(now); got != want || p.wait(last, now) != want {
			t.Errorf("after %d failures: %v and %v, want %v", i+1, got, p.wait(last, now), want)
		}
		now = now.Add(want)
	}
	if !p.overdue(last, now) {
		t.Error("it is not overdue")
	}
	p.failures = 0
	if got := p.wait(saved(now), now); got != time.Hour || p.overdue(saved(now), now) {
		t.Errorf("after a success it waits %v", got)
	}
	for after, want := range map[time.Duration]bool{0: false, grace: false, grace + time.Second: true} {
		if got := p.overdue(saved(now), now.Add(time.Hour+after)); got != want {
			t.Errorf("%v after its time: overdue is %v", after, got)
		}
	}
}

// TestParse verifies which schedules are refused.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"@daily": "", "0 */6 * * 1-5": "", "@every 90s": "", "CRON_TZ=Asia/Tokyo 0 3 * * *": "",
		"": "write five fields", "daily": "write five fields", "* * * * * *": "write five fields", "61 * * * *": "write five fields",
		"@every 1": "write five fields", "CRON_TZ=Mars/Base 0 3 * * *": "write five fields", "CRON_TZ=UTC": "fields are missing", "TZ=": "fields are missing",
		"0 0 30 2 *": "no such date",
	} {
		_, err := Parse(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
