package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/scripts/demo"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// restartAfter is how long the killed leader stays down.
const restartAfter = 2 * time.Second

// story is the sequence of events of one run. It processes the workers' reports, and injects the demo's
// faults into them and the leader. Only one goroutine uses it.
type story struct {
	out     io.Writer
	began   time.Time
	cluster *cluster
	workers map[int]*workerProcess
	alive   int
	total   int // requests

	// Numbers of answers so far.
	answered, refunded, retried, duplicates int

	pause pause
	crash crash

	lastGrant time.Time
	gap       time.Duration // longest interval between two grants
	gapBegan  time.Duration // when it began, since the start
}

// pause is the state of the worker that is stopped.
type pause struct {
	worker int
	order  string // empty until it has signalled
	token  uint64
	// takenOver is the worker that refunded the order in the meantime.
	takenOver int
	// refused and gotIn are the result of the late write.
	refused, gotIn bool
}

// crash is the state of the leader that is killed.
type crash struct {
	killed    string // node ID; empty before
	restart   <-chan time.Time
	restarted bool
	leader    leadership
	changes   int
}

// leadership is the leader of a term.
type leadership struct {
	id   string
	term uint64
}

// tell prints a line with the elapsed time.
func (s *story) tell(format string, args ...any) {
	fmt.Fprintf(s.out, "%6.1fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// run processes reports until all workers have ended.
func (s *story) run(ctx context.Context, reports <-chan report) error {
	leaders := s.cluster.watch(ctx)
	for s.alive > 0 {
		var err error
		select {
		case r := <-reports:
			err = s.hear(ctx, r)
		case now := <-leaders:
			s.led(now)
		case <-s.crash.restart:
			s.crash.restarted = true
			s.tell("%s comes back", s.crash.killed)
			err = s.cluster.start(s.crash.killed)
		case <-ctx.Done():
			err = fmt.Errorf("stopped with %d of %d requests answered: %w", s.answered, s.total, context.Cause(ctx))
		}
		if err != nil {
			return err
		}
	}
	s.tell("all requests are answered")
	return nil
}

// hear processes one report.
func (s *story) hear(ctx context.Context, r report) error {
	if r.ended {
		s.alive--
		if r.err != nil {
			return fmt.Errorf("worker %d: %w\n%s", r.Worker, r.err, tail(s.workers[r.Worker].log, 5))
		}
		return nil
	}
	if r.Answers() {
		s.answered++
	}
	switch r.Kind {
	case demo.Granted:
		s.granted(r.at)
	case demo.Refunded:
		s.refunded++
	case demo.Retried:
		s.retried++
	case demo.Duplicate:
		s.duplicates++
	case demo.Lost:
		s.tell("worker %d lost its session (%s) and opens another", r.Worker, r.Reason)
	}
	if err := s.stopAndGo(r); err != nil {
		return err
	}
	if s.crash.killed == "" && s.answered >= s.total/2 {
		return s.killLeader(ctx)
	}
	return nil
}

func (s *story) granted(at time.Time) {
	if gap := at.Sub(s.lastGrant); !s.lastGrant.IsZero() && gap > s.gap {
		s.gap, s.gapBegan = gap, s.lastGrant.Sub(s.began)
	}
	s.lastGrant = at
}

// stopAndGo stops the worker that signals between its check and its write, and continues it once another
// worker has taken over its order.
func (s *story) stopAndGo(r report) error {
	p := &s.pause
	switch {
	case r.Kind == demo.Checked && p.order == "":
		p.order, p.token = r.Order, r.Token
		s.tell("worker %d is stopped between its check and its write (order %s, token %d)", r.Worker, r.Order, r.Token)
		return s.workers[r.Worker].stop()
	case p.order == "" || r.Order != p.order:
		return nil
	case r.Kind == demo.Refunded && r.Worker != p.worker:
		p.takenOver = r.Worker
		s.tell("worker %d has taken order %s over and refunded it; worker %d goes on", r.Worker, r.Order, p.worker)
		stopped := s.workers[p.worker]
		return errors.Join(stopped.say("go on"), stopped.resume())
	case r.Kind == demo.Stale && r.Worker == p.worker:
		p.refused = true
		why, _, _ := strings.Cut(r.Reason, ";")
		s.tell("the ledger refuses worker %d's write: %s", r.Worker, why)
	case r.Kind == demo.Refunded && r.Worker == p.worker:
		p.gotIn = true
		s.tell("the ledger takes worker %d's write with the stale token %d", r.Worker, p.token)
	}
	return nil
}

// killLeader kills the leader.
func (s *story) killLeader(ctx context.Context) error {
	status, err := s.cluster.await(ctx, func(*wire.StatusResponse) bool { return true })
	if err != nil {
		return err
	}
	s.crash.killed = status.GetLeaderId()
	s.tell("half of the requests are answered: kill -9 of the leader, %s", s.crash.killed)
	s.cluster.kill(s.crash.killed)
	s.crash.restart = time.After(restartAfter)
	return nil
}

func (s *story) led(now leadership) {
	if s.crash.leader.id != "" {
		s.crash.changes++
		s.tell("%s leads, term %d", now.id, now.term)
	}
	s.crash.leader = now
}

// watch reports changes of the leader, as any node sees them.
func (c *cluster) watch(ctx context.Context) <-chan leadership {
	leaders := make(chan leadership)
	go func() {
		var last leadership
		for ctx.Err() == nil {
			attempt, cancel := context.WithTimeout(ctx, time.Second)
			status, err := wirecall.Of(c.client).Status(attempt, &wire.StatusRequest{Stale: true})
			cancel()
			now := leadership{status.GetLeaderId(), status.GetTerm()}
			if err == nil && now.id != "" && now != last {
				select {
				case leaders <- now:
					last = now
				case <-ctx.Done():
				}
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	return leaders
}
