package replica

import (
	"context"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// A node that was away first hears of a leader that was added meanwhile from that leader itself,
// which it must not believe. So it asks the members that it knows about callers that it does not know.
// An answer is kept for a while, few questions are asked at a time, and each has a deadline, so
// that strangers can neither keep the members busy nor fill the memory.

const (
	// vouchTimeout bounds one round of questions.
	vouchTimeout = time.Second
	// dissentTimeout is for how long after the first member that knows the caller another one
	// may say that it was removed.
	dissentTimeout = 100 * time.Millisecond
	// vouchedFor is how long a caller counts as a member that members have vouched for, and
	// unknownFor how long one that they did not know is not asked about again.
	vouchedFor = time.Minute
	unknownFor = time.Second
	// maxVerdicts bounds the callers that are remembered.
	maxVerdicts = 64
	// maxQuestions bounds the callers asked about in a second, maxHostQuestions those that
	// call from one address.
	maxQuestions, maxHostQuestions = 20, 5
)

type callerKey struct{ id, incarnation string }

// verdict is what members said about a caller.
type verdict struct {
	done     chan struct{} // closed once they have
	standing wire.Standing
	until    time.Time
}

// vouchers asks members about callers. It is safe for concurrent use.
type vouchers struct {
	// ask asks one member. It returns UNKNOWN if there is no answer.
	ask func(ctx context.Context, member Peer, incarnation string, about callerKey) wire.Standing

	mu       sync.Mutex // guards what follows
	verdicts map[callerKey]*verdict
	second   time.Time // when the present second of questions began
	asked    int       // within it
	byHost   map[string]int
}

func newVouchers(ask func(context.Context, Peer, string, callerKey) wire.Standing) *vouchers {
	return &vouchers{ask: ask, verdicts: map[callerKey]*verdict{}}
}

// known is what members have said already; UNKNOWN if that was too long ago.
func (v *vouchers) known(who callerKey) wire.Standing {
	v.mu.Lock()
	defer v.mu.Unlock()
	if verdict := v.verdicts[who]; verdict != nil && time.Now().Before(verdict.until) {
		return verdict.standing
	}
	return wire.Standing_UNKNOWN
}

// about returns what members say about a caller at that address, and asks them unless somebody
// has. Nobody vouches for himself.
func (v *vouchers) about(ctx context.Context, who callerKey, host string, members map[Peer]string) wire.Standing {
	v.mu.Lock()
	found := v.verdicts[who]
	fresh := found != nil && (found.until.IsZero() || time.Now().Before(found.until))
	if !fresh {
		if len(members) == 0 || !v.permit(host) {
			v.mu.Unlock()
			return wire.Standing_UNKNOWN
		}
		found = &verdict{done: make(chan struct{})}
		v.evict()
		v.verdicts[who] = found
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
	standing := v.question(ctx, who, members)
	keep := unknownFor
	if standing == wire.Standing_MEMBER || standing == wire.Standing_REMOVED {
		keep = vouchedFor
	}
	v.mu.Lock()
	found.standing, found.until = standing, time.Now().Add(keep)
	v.mu.Unlock()
	close(found.done)
	return standing
}

// permit reports whether one more caller may be asked about in this second.
func (v *vouchers) permit(host string) bool {
	if now := time.Now(); now.Sub(v.second) >= time.Second {
		v.second, v.asked, v.byHost = now, 0, map[string]int{}
	}
	if v.asked >= maxQuestions || v.byHost[host] >= maxHostQuestions {
		return false
	}
	v.asked++
	v.byHost[host]++
	return true
}

// evict makes room for a verdict: what is out of date goes, else what would be next.
func (v *vouchers) evict() {
	now := time.Now()
	var oldest callerKey
	var until time.Time
	for who, verdict := range v.verdicts {
		switch {
		case verdict.until.IsZero(): // being asked about
		case !now.Before(verdict.until):
			delete(v.verdicts, who)
		case until.IsZero() || verdict.until.Before(until):
			oldest, until = who, verdict.until
		}
	}
	if len(v.verdicts) >= maxVerdicts {
		delete(v.verdicts, oldest)
	}
}

// question asks all members at once. A removal is final, whoever knows of it; otherwise it is
// enough that one knows the caller.
func (v *vouchers) question(ctx context.Context, who callerKey, members map[Peer]string) wire.Standing {
	ctx, cancel := context.WithTimeout(ctx, vouchTimeout)
	answers := make(chan wire.Standing, len(members))
	for member, incarnation := range members {
		go func() { answers <- v.ask(ctx, member, incarnation, who) }()
	}
	said := wire.Standing_UNKNOWN
	open := len(members)
	defer func() {
		cancel()
		for ; open > 0; open-- { // they end with ctx
			<-answers
		}
	}()
	var dissent <-chan time.Time
	for open > 0 {
		select {
		case answer := <-answers:
			open--
			switch answer {
			case wire.Standing_REMOVED:
				return answer
			case wire.Standing_MEMBER:
				if said = answer; dissent == nil {
					dissent = time.After(dissentTimeout)
				}
			}
		case <-dissent:
			return said
		}
	}
	return said
}

// askVouch asks one member, which must show the incarnation that it is recorded with.
func (r *Replica) askVouch(ctx context.Context, member Peer, incarnation string, about callerKey) wire.Standing {
	question := &wire.VouchRequest{Id: about.id, Incarnation: about.incarnation}
	resp, reply, err := r.layer.Call(ctx, member.Addr, member.ID, &wire.PeerRequest{Body: &wire.PeerRequest_Vouch{Vouch: question}})
	if err != nil || reply.GetIncarnation() != incarnation || resp.GetStatus() != wire.Status_OK {
		return wire.Standing_UNKNOWN
	}
	return resp.GetStanding()
}
