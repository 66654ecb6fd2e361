package workload

import (
	"errors"
	"fmt"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
)

const (
	// CutClient is the name of the clients of Frail, which share a machine.
	CutClient = FrailClient + "/cut"
	dying     = FrailClient + "/dying"
)

// Frail are clients that may lose their sessions with all their holds, and then open others. Half of the
// locks that they hold belong to the Hot part.
var Frail = Part{CutClient, func(r *Run) {
	for i := range 2 {
		c := r.client(CutClient)
		r.start(CutClient, func(a *actor) {
			a.sessions(c, func(s *client.Session) error {
				name := hot(a)
				if a.rand.IntN(2) == 0 {
					name = lock(CutClient, i)
				}
				h, err := a.lock(a.ctx, s, name)
				if err != nil {
					return err
				}
				h.keep(a.some(4))
				return h.release()
			})
		})
	}
}}

// sessions plays rounds in one session after the other. Each lasts until it is lost.
func (a *actor) sessions(c *client.Client, round func(*client.Session) error) {
	for a.going() {
		s, err := a.open(a.stop, c, a.opts.FrailTTL, false)
		for err == nil && a.going() {
			if err = round(s); err == nil {
				a.rest()
			}
		}
		if s != nil {
			err = errors.Join(err, s.Close(a.ctx))
		}
		if err != nil && a.going() && !errors.Is(err, client.ErrSessionLost) {
			a.must("a round", err)
		}
	}
}

// Dying are processes that end while they hold a lock.
var Dying = Part{dying, func(r *Run) {
	r.start(dying, func(a *actor) {
		for i := 0; a.going(); i++ {
			a.die(lock(CutClient, i%2))
			for range 8 {
				a.rest()
			}
		}
	})
}}

func (a *actor) die(name string) {
	c := a.env.Client(dying)
	defer wirecall.Crash(c)
	s, err := a.open(a.stop, c, a.opts.FrailTTL, false)
	if err == nil {
		_, err = a.lock(a.stop, s, name)
	}
	if err != nil && a.going() && !errors.Is(err, client.ErrSessionLost) {
		a.must(fmt.Sprint("lock ", name), err)
	}
	a.pause(a.some(2), a.stop.Done())
}
