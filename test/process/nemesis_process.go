package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// processNemeses end, freeze and restart processes.
var processNemeses = []Nemesis{
	{Name: "kill the leader", strike: func(s *strike) uint64 {
		term, old := s.term(), s.Leader()
		s.Kill9(old)
		s.AwaitLeader(old)
		s.last()
		s.Restart(old)
		return s.later(term)
	}},
	{Name: "kill a follower", strike: func(s *strike) uint64 {
		id := s.one(s.Others(s.Leader()))
		s.Kill9(id)
		s.last()
		s.Restart(id)
		return 1
	}},
	{Name: "kill a majority", strike: func(s *strike) uint64 {
		ids := s.some(len(s.nodes)/2 + 1)
		s.Kill9(ids...)
		s.last()
		s.Restart(ids...)
		return uint64(len(ids))
	}},
	{Name: "kill all", strike: func(s *strike) uint64 {
		term := s.term()
		s.Kill9(s.IDs()...)
		s.Restart(s.IDs()...)
		return s.later(term)
	}},
	{Name: "kill one again and again", strike: func(s *strike) uint64 {
		id := s.one(s.IDs())
		const times = 4
		for range times {
			s.Kill9(id)
			s.Restart(id)
			s.Pass(s.between(0, time.Second))
		}
		return times
	}},
	{Name: "freeze the leader", strike: func(s *strike) uint64 {
		term, old := s.term(), s.Leader()
		s.Stop(old)
		s.AwaitLeader(old)
		s.last()
		s.Continue(old)
		s.deposed(old, term)
		return s.later(term)
	}},
	{Name: "freeze a follower", strike: func(s *strike) uint64 {
		id := s.one(s.Others(s.Leader()))
		s.Stop(id)
		s.last()
		s.Continue(id)
		return 1
	}},
	{Name: "freeze all", strike: func(s *strike) uint64 {
		for _, id := range s.IDs() {
			s.Stop(id)
		}
		s.last()
		for _, id := range s.some(len(s.nodes)) {
			s.Continue(id)
		}
		return uint64(len(s.nodes))
	}},
	{Name: "freeze the leader briefly", strike: blink},
	{Name: "let the leader stutter", strike: stutter},
	{Name: "stop the leader gracefully", strike: func(s *strike) uint64 {
		term, old := s.term(), s.Leader()
		s.Terminate(old)
		s.AwaitLeader(old)
		s.Restart(old)
		return s.later(term)
	}},
	{Name: "restart one after the other", strike: roll},
	{Name: "transfer leadership", strike: transfer},
}

// unnoticed is the longest freeze of a leader that its followers should tolerate, even on a busy machine.
// Their timeout is half a second, and the leader contacts them ten times as often.
const unnoticed = 250 * time.Millisecond

// blink freezes the leader for moments that are too short for an election. It returns how many of them took
// effect without an election: the node did not answer during the freeze, and served in the same term
// afterwards.
func blink(s *strike) (effect uint64) {
	s.t.Helper()
	const times = 8
	for range times {
		term, id := s.term(), s.Leader()
		s.Stop(id)
		err := s.unanswered(id, s.between(unnoticed/5, unnoticed))
		s.Continue(id)
		s.term() // a leadership check newer than the freeze
		s.Pass(s.between(0, 2*unnoticed))
		if errors.Is(err, context.DeadlineExceeded) && s.Leader() == id && s.later(term) == 0 {
			effect++
		}
	}
	return effect
}

// unanswered waits until a frozen node has not answered a request for that time: on a busy machine it may run
// for another moment. It returns the error of that request.
func (s *strike) unanswered(id string, within time.Duration) (err error) {
	for err == nil {
		frozen, thaw := context.WithTimeout(context.Background(), within)
		_, err = s.Metrics(frozen, id)
		thaw()
	}
	return err
}

// stutter freezes the leader for moments about as long as its followers' timeout.
func stutter(s *strike) uint64 {
	const times = 8
	for range times {
		id := s.Leader()
		s.Stop(id)
		s.Pass(s.between(50*time.Millisecond, 900*time.Millisecond))
		s.Continue(id)
	}
	return times
}

// roll restarts all nodes one by one, as an upgrade does.
func roll(s *strike) uint64 {
	for _, id := range s.some(len(s.nodes)) {
		s.Terminate(id)
		s.Restart(id)
		s.AwaitAll()
	}
	return uint64(len(s.nodes))
}

// transfer transfers leadership from node to node.
func transfer(s *strike) uint64 {
	const times = 3
	term := s.term()
	for range times {
		old := s.Leader()
		to := s.one(s.Others(old))
		s.Await(fmt.Sprintf("transfer from %s to %s", old, to), WaitTimeout, func(ctx context.Context) error {
			_, err := wirecall.Of(s.client).TransferLeadership(ctx, &wire.TransferLeadershipRequest{Id: to, Reason: "test"})
			return err
		})
		s.AwaitLeader(old)
	}
	return s.later(term)
}
