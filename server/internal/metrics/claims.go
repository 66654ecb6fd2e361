package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/histogram"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// In entries with more events than allMeasured, one hold in sampledHolds is measured, chosen by its token: such entries
// have hundreds, and an observation costs as much as a tenth of a command.
const (
	allMeasured  = 16
	sampledHolds = 8
)

// claims measures how long claims wait and how long holds last, by the clock of this node, while it leads. The state
// machine has no clock that could measure them: its times are those of several nodes, in milliseconds. Only the completer
// uses it.
type claims struct {
	waits, holds prometheus.Histogram

	// began is when the clock of the timelines began.
	began time.Time
	leads bool
	// queued dates waits by the ids of their claims, granted dates holds by their tokens.
	queued, granted timeline
}

func newClaims() *claims {
	buckets := prometheus.ExponentialBuckets(0.001, 4, 12)
	return &claims{
		began: time.Now(),
		waits: prometheus.NewHistogram(histogram.Options("quorumlock_wait_seconds",
			"Time from a queued acquire to its grant, under this node as leader. Waits that began under an earlier leader and those of upgrades are not observed.", buckets)),
		holds: prometheus.NewHistogram(histogram.Options("quorumlock_hold_seconds",
			"Time from the grant of a hold, or of its last upgrade, to its end, under this node as leader. Holds that began under an earlier leader are not observed, and of many that end at once one in eight.", buckets)),
	}
}

// Lead begins a leadership with this state. What began before is not measured.
func (m *Metrics) Lead(state *fsm.Machine) {
	if m.registry != nil {
		m.claims.begin(state.Revision(), state.Token())
	}
}

// begin begins a leadership after that revision and that token.
func (c *claims) begin(revision, token uint64) {
	c.leads = true
	c.queued.begin(revision)
	c.granted.begin(token)
}

// follow follows the events of an entry that was applied at that time.
func (c *claims) follow(events []*wire.Event, at time.Time) {
	if !c.leads {
		return
	}
	now := at.Sub(c.began)
	for _, e := range events {
		switch e.Type {
		case wire.Event_QUEUED:
			if !e.Upgrade { // a wait of the hold, whose id is older
				c.queued.add(e.HoldId, now)
			}
		case wire.Event_GRANTED:
			if e.Waited && !e.Upgrade {
				observe(c.waits, &c.queued, e.HoldId, now)
			}
			c.granted.add(e.Token, now)
		case wire.Event_RELEASED, wire.Event_EXPIRED, wire.Event_FORCED:
			if len(events) <= allMeasured || e.Token%sampledHolds == 0 {
				observe(c.holds, &c.granted, e.Token, now)
			}
		}
	}
}

func observe(to prometheus.Histogram, dates *timeline, number uint64, now time.Duration) {
	if at, known := dates.date(number); known {
		to.Observe((now - at).Seconds())
	}
}
