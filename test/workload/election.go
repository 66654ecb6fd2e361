package workload

import (
	"context"
	"fmt"
	"sync"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/history"
)

const elections = "elections"

// ballot is what is known of one election: the winners, and the observed leaders.
type ballot struct {
	name string

	mu   sync.Mutex // guards the fields below
	won  map[uint64]bool
	seen []uint64
}

// Elections are candidates that lead for a while and resign, and an observer.
var Elections = Part{elections, func(r *Run) {
	b := &ballot{name: lock(elections, 0), won: map[uint64]bool{}}
	r.observe(b)
	steadily(elections, 3, func(a *actor, s *client.Session) error { return a.campaign(s, b) }).play(r)
}}

// campaign campaigns, leads and resigns.
func (a *actor) campaign(s *client.Session, b *ballot) error {
	asked := a.env.Log.Now()
	won, err := s.Election(b.name).Campaign(a.ctx, client.WithValue([]byte(a.name)))
	if err != nil {
		return fmt.Errorf("campaign: %w", err)
	}
	b.mu.Lock()
	b.won[won.Token()] = true
	b.mu.Unlock()
	a.count(Led)
	booked := a.env.Log.Grant(history.Hold{
		Client: a.client, Session: s.ID(), Token: won.Token(), Locks: history.Exclusive(b.name), Asked: asked,
	})
	booked.Follow(won.Context())
	a.pause(a.some(1), won.Context().Done())
	if err := won.SetValue(a.ctx, []byte("still "+a.name)); err != nil {
		return fmt.Errorf("set the leader's value: %w", err)
	}
	a.pause(a.some(1), won.Context().Done())
	if err := won.Resign(a.ctx); err != nil {
		return fmt.Errorf("resign: %w", err)
	}
	booked.Acknowledge()
	return nil
}

// observe follows an election to the end of the load. No leader may have a smaller token than an earlier one,
// and each must have won.
func (r *Run) observe(b *ballot) {
	c := r.client("observer")
	ctx, stop := context.WithCancel(r.ctx)
	leaders := c.Observe(ctx, b.name)
	r.following.Go(func() {
		for leader := range leaders {
			if leader.Token != 0 {
				b.mu.Lock()
				b.seen = append(b.seen, leader.Token)
				b.mu.Unlock()
			}
		}
	})
	r.atTheEnd(func() {
		stop()
		b.mu.Lock()
		defer b.mu.Unlock()
		var last uint64
		for _, token := range b.seen {
			if token < last || !b.won[token] {
				r.fault("%s: the leader with token %d was observed after %d; has it won: %v", b.name, token, last, b.won[token])
			}
			last = token
		}
		r.counts(Counts{Observed: len(b.seen)})
	})
}
