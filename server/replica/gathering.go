package replica

import (
	"math"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// gatherPatience is how soon a client has to ask again to count as one that does, and
	// how long an entry waits for it.
	gatherPatience = 4 * time.Millisecond
	// gatherMemory is over how many entries the share of those who ask again is averaged.
	gatherMemory = 8
	// gatherSlots is how many clients are told apart; two in one slot count together.
	gatherSlots = 1 << 10
)

// gathering tells the proposer whether to wait a moment before it packs an entry. Who was
// just answered often asks again at once: a client that has its lock gives it back, the
// next holder of a hot lock releases it while the last one queues again. If the entry does
// not wait for them, the clients of a busy cluster fall into groups that take turns, and
// each entry, which costs much the same whatever it carries, serves one group alone. So
// where those who were answered by an entry usually ask again soon, the next one waits for
// as many of them as usual.
type gathering struct {
	// wake is called when the proposer has waited for long enough.
	wake func()

	entry    uint32 // numbers the entries
	landing  time.Time
	slots    [gatherSlots]slot
	answered int     // by the last entry
	returned int     // of those, soon
	share    float64 // 0..1: how many of those answered return soon, a moving average
	want     int     // commands that are worth an entry now
	timer    *time.Timer
}

// slot counts the clients that an entry answered and that have not asked again.
type slot struct{ entry, away uint32 }

func (g *gathering) slot(session uint64) *slot { return &g.slots[session%gatherSlots] }

// landed begins to wait for those whom the batch's entry answered, while others are queued
// already.
func (g *gathering) landed(b *batch, applied appliedEntry, queued int) {
	if g.answered > 0 {
		g.share += (float64(g.returned)/float64(g.answered) - g.share) / gatherMemory
	}
	g.entry++
	g.answered, g.returned, g.landing = 0, 0, time.Now()
	if applied.Applied == nil {
		return
	}
	for i, result := range applied.Results {
		if result.GetStatus() != wire.Status_QUEUED {
			g.expect(b.items[i].cmd.GetSessionId())
		}
	}
	for _, e := range applied.Events {
		if e.Type == wire.Event_GRANTED && e.Waited {
			g.expect(e.SessionId)
		}
	}
	g.want = queued + int(math.Round(g.share*float64(g.answered)))
}

func (g *gathering) expect(session uint64) {
	s := g.slot(session)
	if s.entry != g.entry {
		*s = slot{entry: g.entry}
	}
	s.away++
	g.answered++
}

// came notes a command.
func (g *gathering) came(session uint64) {
	if s := g.slot(session); s.entry == g.entry && s.away > 0 && time.Since(g.landing) < gatherPatience {
		s.away--
		g.returned++
	}
}

// enough tells whether so many queued commands are worth an entry.
func (g *gathering) enough(queued int) bool { return queued >= g.want }

// waiting tells whether the end of the patience is under way.
func (g *gathering) waiting() bool { return g.timer != nil }

// wait bounds the waiting from now on, unless it is bounded already.
func (g *gathering) wait() {
	if g.timer == nil {
		g.timer = time.AfterFunc(gatherPatience, g.wake)
	}
}

// stop ends the waiting.
func (g *gathering) stop() {
	g.want = 0
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
}
