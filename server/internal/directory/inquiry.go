package directory

import (
	"context"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// A node that was away first hears of a leader that was added in the meantime from that leader itself, and
// must not trust it. So it asks the members that it knows about callers that it does not know. Answers are
// cached, the rate of questions is limited, and each question has a timeout, so strangers can neither keep
// the members busy nor fill the memory.

const (
	// inquiryTimeout bounds one round of questions.
	inquiryTimeout = time.Second
	// removalTimeout is how long after the first member that knows the caller other members may still report
	// its removal.
	removalTimeout = 100 * time.Millisecond
	// knownFor is how long a positive answer, or a removal, is cached, and unknownFor how long any other
	// answer.
	knownFor   = time.Minute
	unknownFor = time.Second
	// maxAnswers bounds the cached answers.
	maxAnswers = 64
	// maxInquiries bounds the callers asked about per second, maxHostInquiries those from one address.
	maxInquiries, maxHostInquiries = 20, 5
)

// caller identifies a node that asks to be heard.
type caller struct{ id, incarnation string }

// answer is the members' answer about a caller.
type answer struct {
	done     chan struct{} // closed once they have answered
	standing wire.Standing
	until    time.Time
}

// askFunc is the type of Config.Ask.
type askFunc = func(ctx context.Context, member Peer, incarnation string, about *wire.StandingRequest) wire.Standing

// inquiries asks members about callers. It is safe for concurrent use.
type inquiries struct {
	ask askFunc

	mu      sync.Mutex // guards the fields below
	answers map[caller]*answer
	second  time.Time // start of the current second of questions
	asked   int       // callers asked about in that second
	byHost  map[string]int
}

func newInquiries(ask askFunc) *inquiries {
	return &inquiries{ask: ask, answers: map[caller]*answer{}}
}

// known returns the members' cached answer, or UNKNOWN if there is none.
func (v *inquiries) known(who caller) wire.Standing {
	v.mu.Lock()
	defer v.mu.Unlock()
	if answer := v.answers[who]; answer != nil && time.Now().Before(answer.until) {
		return answer.standing
	}
	return wire.Standing_UNKNOWN
}

// about returns the members' answer about a caller at that address. It asks them unless the answer is cached
// or being requested. The caller itself is never among the members asked.
func (v *inquiries) about(ctx context.Context, who caller, host string, members map[Peer]string) wire.Standing {
	v.mu.Lock()
	found := v.answers[who]
	fresh := found != nil && (found.until.IsZero() || time.Now().Before(found.until))
	if !fresh {
		if len(members) == 0 || !v.permit(host) {
			v.mu.Unlock()
			return wire.Standing_UNKNOWN
		}
		found = &answer{done: make(chan struct{})}
		v.evict()
		v.answers[who] = found
	}
	v.mu.Unlock()
	if fresh {
		select {
		case <-found.done:
			return v.known(who)
		case <-ctx.Done():
			return wire.Standing_UNKNOWN
		}
	}
	standing := v.askAll(ctx, who, members)
	keep := unknownFor
	if standing == wire.Standing_MEMBER || standing == wire.Standing_REMOVED {
		keep = knownFor
	}
	v.mu.Lock()
	found.standing, found.until = standing, time.Now().Add(keep)
	v.mu.Unlock()
	close(found.done)
	return standing
}

// permit reports whether this second's limits allow questions about one more caller. Called with mu held.
func (v *inquiries) permit(host string) bool {
	if now := time.Now(); now.Sub(v.second) >= time.Second {
		v.second, v.asked, v.byHost = now, 0, map[string]int{}
	}
	if v.asked >= maxInquiries || v.byHost[host] >= maxHostInquiries {
		return false
	}
	v.asked++
	v.byHost[host]++
	return true
}

// evict makes room for an answer. It drops expired answers and, if that is not enough, the one that expires
// next. Called with mu held.
func (v *inquiries) evict() {
	now := time.Now()
	var oldest caller
	var until time.Time
	for who, answer := range v.answers {
		switch {
		case answer.until.IsZero(): // still being asked about
		case !now.Before(answer.until):
			delete(v.answers, who)
		case until.IsZero() || answer.until.Before(until):
			oldest, until = who, answer.until
		}
	}
	if len(v.answers) >= maxAnswers {
		delete(v.answers, oldest)
	}
}

// askAll asks all members concurrently. A removal is final, whichever member reports it. Otherwise it is
// enough that one member knows the caller.
func (v *inquiries) askAll(ctx context.Context, who caller, members map[Peer]string) wire.Standing {
	ctx, cancel := context.WithTimeout(ctx, inquiryTimeout)
	answers := make(chan wire.Standing, len(members))
	about := &wire.StandingRequest{Id: who.id, Incarnation: who.incarnation}
	for member, incarnation := range members {
		go func() { answers <- v.ask(ctx, member, incarnation, about) }()
	}
	said := wire.Standing_UNKNOWN
	open := len(members)
	defer func() {
		cancel()
		for ; open > 0; open-- { // they end with ctx
			<-answers
		}
	}()
	var waiting <-chan time.Time
	for open > 0 {
		select {
		case answer := <-answers:
			open--
			switch answer {
			case wire.Standing_REMOVED:
				return answer
			case wire.Standing_MEMBER:
				if said = answer; waiting == nil {
					waiting = time.After(removalTimeout)
				}
			}
		case <-waiting:
			return said
		}
	}
	return said
}
