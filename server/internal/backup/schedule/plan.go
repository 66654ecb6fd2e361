package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// shortestPause and longestPause bound the pause after a failed attempt. It doubles with each failure.
	shortestPause = time.Minute
	longestPause  = time.Hour
	// skew is how far the clocks of two nodes may differ.
	skew = time.Minute
	// grace is how long after its time a backup may be missing before status says so.
	grace = 5 * time.Minute
)

// Parse reads a cron expression with five fields, or one like @daily or @every 1h. Times are in UTC unless it begins
// with CRON_TZ=.
func Parse(text string) (cron.Schedule, error) {
	if zone, _, spaced := strings.Cut(text, " "); !spaced && strings.Contains(zone, "TZ=") {
		return nil, errors.New("the fields are missing after the time zone") // the parser would panic
	}
	schedule, err := cron.ParseStandard(text)
	if err != nil {
		return nil, fmt.Errorf("write five fields, as in \"30 2 * * *\", or @daily or @every 1h: %w", err)
	}
	if schedule.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, errors.New("there is no such date")
	}
	return schedule, nil
}

// plan decides when a backup is due.
type plan struct {
	schedule cron.Schedule
	// began is when the node began to lead or, before that, to run.
	began time.Time
	// last is the latest backup, and from the time from which the schedule counts.
	last *wire.SavedBackup
	from time.Time
	// failures counts the attempts since then, again is when the next one may begin. It has a monotonic clock.
	failures uint32
	again    time.Time
}

// due returns when the next backup is due. Without an earlier one that is at once.
func (p *plan) due(last *wire.SavedBackup, now time.Time) time.Time {
	if last == nil {
		p.last = nil
		return p.began
	}
	if last != p.last {
		p.last, p.from = last, time.UnixMilli(last.UnixMs)
		if p.from.After(now.Add(skew)) {
			p.from = now // the other node's clock was wrong: do not wait until it is right
		}
	}
	return p.schedule.Next(p.from.UTC())
}

// wait returns how long to wait for the next attempt.
func (p *plan) wait(last *wire.SavedBackup, now time.Time) time.Duration {
	until := p.due(last, now).Round(0).Sub(now.Round(0)) // by the wall clock, which may jump
	if p.failures > 0 {
		until = max(until, p.again.Sub(now))
	}
	return max(0, until)
}

// overdue reports whether a backup is missing.
func (p *plan) overdue(last *wire.SavedBackup, now time.Time) bool {
	return now.Round(0).Sub(p.due(last, now).Round(0)) > grace
}

// failed returns how long the next attempt will wait.
func (p *plan) failed(now time.Time) time.Duration {
	pause := longestPause
	if p.failures < 6 {
		pause = min(longestPause, shortestPause<<p.failures)
	}
	p.failures++
	p.again = now.Add(pause)
	return pause
}
