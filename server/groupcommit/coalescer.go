package groupcommit

import (
	"math"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// coalesceTimeout is how soon a client must send again to count as returning, and how long an entry waits
	// for such clients.
	coalesceTimeout = 4 * time.Millisecond
	// averagedEntries is the number of entries over which the share of returning clients is averaged.
	averagedEntries = 8
	// sessionSlots is the number of slots that sessions are distributed over. Sessions in the same slot are
	// counted together.
	sessionSlots = 1 << 10
)

// coalescer decides whether the proposer delays a batch briefly (batch coalescing). A client that was just
// answered often sends again immediately: a client that was granted a lock releases it, and on a hot lock,
// the previous holder queues again while the next one releases. If the next entry does not wait for them, the
// clients of a busy cluster split into groups that take turns. Each entry then serves only one group,
// although it costs much the same whatever it carries. So where the clients that an entry answered usually
// send again soon, the next entry waits for as many of them as usual.
//
// Its methods are called with the proposer's mu held.
type coalescer struct {
	// wake is called when the proposer has waited long enough.
	wake func()

	entry      uint32 // number of the last entry
	finishedAt time.Time
	slots      [sessionSlots]slot
	answered   int     // how many requests the last entry answered
	returned   int     // how many of them sent again soon
	share      float64 // moving average of returned/answered, 0..1
	want       int     // number of queued commands that are worth an entry
	timer      *time.Timer
}

// slot counts the sessions that an entry answered and that have not sent again.
type slot struct{ entry, away uint32 }

func (g *coalescer) slot(session uint64) *slot { return &g.slots[session%sessionSlots] }

// finished starts to wait for the clients that the batch's entry answered. queued is the number of commands
// that are queued already.
func (g *coalescer) finished(b *Batch, applied *fsm.Applied, queued int) {
	if g.answered > 0 {
		g.share += (float64(g.returned)/float64(g.answered) - g.share) / averagedEntries
	}
	g.entry++
	g.answered, g.returned, g.finishedAt = 0, 0, time.Now()
	if applied == nil {
		return
	}
	for i, result := range applied.Results {
		if result.GetStatus() != wire.Status_QUEUED {
			g.expect(b.Items[i].Command.GetSessionId())
		}
	}
	for _, e := range applied.Events {
		if e.Type == wire.Event_GRANTED && e.Waited {
			g.expect(e.SessionId)
		}
	}
	g.want = queued + int(math.Round(g.share*float64(g.answered)))
}

func (g *coalescer) expect(session uint64) {
	s := g.slot(session)
	if s.entry != g.entry {
		*s = slot{entry: g.entry}
	}
	s.away++
	g.answered++
}

// came records that a session sent a command.
func (g *coalescer) came(session uint64) {
	if s := g.slot(session); s.entry == g.entry && s.away > 0 && time.Since(g.finishedAt) < coalesceTimeout {
		s.away--
		g.returned++
	}
}

// enough reports whether that many queued commands are worth an entry.
func (g *coalescer) enough(queued int) bool { return queued >= g.want }

// waiting reports whether a delay is in progress.
func (g *coalescer) waiting() bool { return g.timer != nil }

// wait starts the timer that ends the delay, unless it is running.
func (g *coalescer) wait() {
	if g.timer == nil {
		g.timer = time.AfterFunc(coalesceTimeout, g.wake)
	}
}

// stop ends the delay.
func (g *coalescer) stop() {
	g.want = 0
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
}
