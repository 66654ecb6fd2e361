package client

import (
	"math/rand/v2"
	"time"
)

// spreadFailed is the most time to the next question after one that showed something to be wrong. It is random, so that
// many clients do not ask a node at once.
const spreadFailed = 10 * time.Millisecond

// pace decides when a search asks the next member. The first one mostly knows the leader, and an election is mostly
// over when the second one would be asked. A thousand clients that all asked every member at once would keep the nodes
// busy for seconds after each fail-over, leave questions unanswered for that reason, and begin again. Therefore the
// intervals double while nothing is heard.
type pace struct {
	next time.Duration // when the next member is asked
	step time.Duration // from that one to the one after it
	most time.Duration // the longest step
}

func newPace(now, most time.Duration) pace {
	return pace{next: now, step: min(answerTimeout, most), most: most}
}

// asked schedules the question after the one that is asked now.
func (p *pace) asked(now time.Duration) {
	p.next = now + dispersed(p.step)
	p.step = min(2*p.step, p.most)
}

// hurry schedules the next question soon: what was hoped for is not so.
func (p *pace) hurry(now time.Duration) {
	p.next = min(p.next, now+rand.N(spreadFailed))
	p.step = min(answerTimeout, p.most)
}

// dispersed returns d or up to a quarter less, so that many clients do not ask a node at once.
func dispersed(d time.Duration) time.Duration { return d - rand.N(d/4+1) }
