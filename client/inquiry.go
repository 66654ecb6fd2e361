package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// inquiry is a connection to a member that is asked for the leader.
type inquiry struct {
	greeting
	member *member
	// keep makes the connection outlive the inquiry. It returns false if it was cut already.
	keep func() bool
}

// verdict is what becomes of an inquiry after an answer.
type verdict int

const (
	verdictListen verdict = iota // for what the member reports next
	verdictHold                  // until a hint of a later term is refuted
	verdictTaken                 // the client uses the connection
)

// ask starts an inquiry. With doubted, it is made because a request is unanswered.
func (s *search) ask(m *member, now time.Duration, doubted bool) {
	if m.silent == 0 {
		m.silent = now
	}
	ctx, cancel := context.WithCancel(s.client.ctx)
	m.cancel, m.asked, m.hinted = cancel, now, false
	s.client.wg.Go(func() {
		defer cancel()
		end := endNeedless
		var err error
		if !doubted || s.client.stillHangs() {
			end, err = s.inquire(ctx, m)
		}
		s.client.mu.Lock()
		defer s.client.unlock()
		if end != endTaken {
			s.conclude(m, end, err)
		}
	})
}

// ending is how an inquiry ended.
type ending int

const (
	endNeedless  ending = iota // there was no need for it any more
	endCancelled               // the search is over
	endLasted                  // the member was listened to for long enough
	endFailed                  // the member did not answer, or ended the connection
	endTaken                   // the client uses the connection
)

// conclude handles the end of an inquiry.
func (s *search) conclude(m *member, end ending, err error) {
	now := s.client.clock.Now()
	switch {
	case end == endFailed && m.silent != 0:
		s.noAnswer(m, err, now)
	case end == endFailed:
		m.failed++
		m.askAt = now + s.pause(m.failed)
	case end == endLasted:
		m.failed, m.askAt = 0, now
	case end == endNeedless:
		m.askAt = now + answerTimeout
		fallthrough
	default:
		m.silent = 0
	}
	m.cancel, m.listening = nil, false
	s.seek(now)
}

// inquire asks a member for the leader, and listens to it until the time for that has passed or the connection ends.
func (s *search) inquire(ctx context.Context, m *member) (ending, error) {
	within, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	greeting, err := s.client.hello(within, m.addr, "")
	span, end := context.WithTimeout(ctx, s.span())
	defer end()
	if err == nil {
		q := &inquiry{greeting: *greeting, member: m}
		q.keep = context.AfterFunc(span, func() { transport.Cut(q.nc) })
		if err = s.listen(span, q); err == nil {
			return endTaken, nil
		}
		transport.Cut(q.nc)
	}
	switch {
	case ctx.Err() != nil:
		return endCancelled, nil
	case span.Err() != nil:
		return endLasted, nil
	}
	return endFailed, err
}

// listen hears a member until the client uses the connection, or it ends with an error.
func (s *search) listen(ctx context.Context, q *inquiry) error {
	var frame wire.ServerFrame
	for {
		verdict, refuted := s.hear(q)
		if verdict == verdictHold {
			select {
			case <-refuted:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if verdict == verdictTaken {
			return nil
		}
		if err := q.next(&frame); err != nil {
			return err
		}
	}
}

// next reads frames until one names a leader, or nobody.
func (q *inquiry) next(frame *wire.ServerFrame) error {
	for {
		if err := q.in.Read(frame); err != nil {
			return err
		}
		if bye := frame.GetGoodbye(); bye != nil {
			return &transport.GoodbyeError{Code: bye.GetCode(), Message: bye.GetMessage()}
		}
		if push, ok := frame.GetPush().GetBody().(*wire.Push_Leader); ok {
			q.reply.Leader = push.Leader
			return nil
		}
	}
}

// hear handles a member's answer.
func (s *search) hear(q *inquiry) (verdict, <-chan struct{}) {
	c := s.client
	c.mu.Lock()
	defer c.unlock()
	now, m, hint := c.clock.Now(), q.member, q.reply.GetLeader()
	m.said, m.node, m.err, m.silent, m.listening = hint, q.reply.GetNodeId(), nil, 0, true
	if listed := q.reply.GetMembers(); len(listed) > 0 {
		s.listed = listed
	}
	s.learnListed()
	if q.leads() {
		m.refuted = 0
	} else {
		s.refute(m, now)
	}
	s.follow(hint, now)
	defer s.seek(now)
	switch _, later := s.believed(); {
	case c.halted:
	case q.leads() && !s.better(hint.GetTerm(), false):
	case q.leads() && later > hint.GetTerm():
		return verdictHold, s.refuted
	case q.leads(), c.conn == nil && c.made == nil:
		if q.keep() {
			s.take(newConn(m.addr, &q.greeting))
			m.cancel, m.listening = nil, false
			return verdictTaken, nil
		}
	}
	return verdictListen, nil
}

// better reports whether a connection to a leader of that term is better than the present one.
func (s *search) better(term uint64, tunnel bool) bool {
	c := s.client
	if made := c.made; made != nil && made.leads && made.term >= term {
		return false
	}
	switch cn := c.conn; {
	case cn == nil || !cn.leads || term > cn.term:
		return true
	case term < cn.term:
		return false
	case tunnel:
		return c.hangs(c.clock.Now())
	default:
		return cn.direct != "" && !c.unrepeatable()
	}
}

// errOutOfReach is why the leader of a tunnel does not answer.
var errOutOfReach = errors.New("the node can be reached through a tunnel only")

// take makes a connection the next one that the client uses: to the leader, or to any member if there is none.
func (s *search) take(cn *conn) {
	c := s.client
	if c.made != nil {
		c.made.discard()
	}
	c.made = cn
	if m := s.of(cn); m != nil {
		m.said, m.node, m.silent, m.err = cn.leader, cn.node, 0, nil
		if cn.direct != "" {
			m.err = errOutOfReach
		}
		m.askAt = c.clock.Now() + s.span() // if it does not lead: the connection may break silently
	}
	if cn.leads {
		s.found(cn)
	}
	if c.conn != nil {
		c.conn.fail(fmt.Errorf("leader is reached at %s now", cn.addr))
	}
	c.wakeConnector()
}

// said handles what the node at the other end of the client's connection reports about the leader.
func (s *search) said(cn *conn, hint *wire.LeaderHint) {
	now := s.client.clock.Now()
	s.client.noteLeader(hint)
	if m := s.of(cn); m != nil {
		m.said, m.node = hint, cn.node
		if hint.GetId() == cn.node && cn.node != "" {
			m.refuted = 0
		} else {
			cn.leads = false
			s.refute(m, now)
		}
	}
	s.follow(hint, now)
	s.reconsider()
	s.seek(now)
}

// reconsider starts to use the connected node as leader, if that is what it says and no later one is believed in.
func (s *search) reconsider() {
	cn := s.client.conn
	if cn == nil || cn.err != nil {
		return
	}
	m := s.of(cn)
	if m == nil || cn.node == "" || m.said.GetId() != cn.node {
		return
	}
	if _, later := s.believed(); later <= m.said.GetTerm() {
		s.client.leadsNow(cn, m.said.GetTerm())
	}
}

// notLeader handles the hint of a NOT_LEADER answer.
func (n *connector) notLeader(cn *conn, hint *wire.LeaderHint) {
	if hint.GetId() == cn.node && cn.node != "" {
		return // it was elected but does not serve yet, and the request is resent
	}
	n.client.search.said(cn, hint)
}

// onLeader handles a push about a change of leadership. There may be no leader at the moment.
func (n *connector) onLeader(cn *conn, hint *wire.LeaderHint) {
	if cn.leads && hint.GetId() != "" && hint.GetTerm() < cn.term {
		return // it was sent before the node led
	}
	n.client.search.said(cn, hint)
}
