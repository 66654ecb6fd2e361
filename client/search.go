package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// maxLearned bounds the number of addresses kept from hints.
	maxLearned = 16
	// listenFor is how long a member that does not lead is listened to before it is asked again, or up to a quarter less.
	// It reports the next leader as soon as it knows it.
	listenFor = 1250 * time.Millisecond
)

// member is what the client knows of one address of the cluster.
type member struct {
	addr string
	// said is the leader that its last answer names, and node its own id. They are empty if it does not answer.
	said *wire.LeaderHint
	node string
	// refuted is the highest term of a hint that named this member in error: it did not answer, or does not lead. Such
	// hints are not believed any more.
	refuted uint64
	// term is the highest one in which it was said to lead. What failed before says nothing about a later one.
	term   uint64
	err    error         // why it does not answer; nil if it does or was not asked
	failed int           // consecutive connections that did not come about or ended early
	silent time.Duration // since when it has been asked without an answer; 0 if it answered
	askAt  time.Duration // the earliest time to ask it again
	hinted bool          // it is said to lead: it is asked without waiting for its turn

	cancel    context.CancelFunc // ends the inquiry under way; nil if there is none
	asked     time.Duration      // when that inquiry began
	listening bool               // it has answered that inquiry
}

// search finds the leader, while there is a reason to look for one and no connection to it. It asks all members at
// growing intervals (pace), without waiting for answers, each over one connection, and listens to those that do not
// lead. The first one that leads is connected to, unless another member is said to lead in a later term; that one has to
// fail first. It is guarded by the client's mutex.
type search struct {
	client *Client

	members []*member     // the configured endpoints, then those learned from hints
	listed  []string      // the addresses of the members, as the last node listed them
	on      bool          // it is under way
	since   time.Duration // when it began
	round   int           // how often all members have failed
	pace    pace          // when the next member is asked
	refuted chan struct{} // closed and replaced when a hint is refuted
	tunnel  tunnelState
}

func newSearch(c *Client) search {
	s := search{client: c, refuted: make(chan struct{})}
	for _, addr := range c.cfg.Endpoints {
		if s.at(addr) == nil {
			s.members = append(s.members, &member{addr: addr})
		}
	}
	return s
}

// at returns the member with an address, or nil.
func (s *search) at(addr string) *member {
	for _, m := range s.members {
		if m.addr == addr {
			return m
		}
	}
	return nil
}

// of returns the member at the other end of a connection, or nil.
func (s *search) of(cn *conn) *member { return s.at(cmp.Or(cn.direct, cn.addr)) }

// named returns the member that a hint names, or nil. A node is reached at the address at which it answers, and perhaps
// not at the one that it advertises.
func (s *search) named(hint *wire.LeaderHint) *member {
	for _, m := range s.members {
		if hint.GetId() != "" && m.node == hint.GetId() {
			return m
		}
	}
	return s.at(hint.GetClientAddr())
}

// learn adds the member at an address.
func (s *search) learn(addr string) {
	if addr == "" || s.at(addr) != nil {
		return
	}
	configured := len(s.client.cfg.Endpoints)
	if len(s.members) >= configured+maxLearned {
		i := slices.IndexFunc(s.members, func(m *member) bool { return m.cancel == nil && !slices.Contains(s.client.cfg.Endpoints, m.addr) })
		if i < 0 {
			return
		}
		s.members = slices.Delete(s.members, i, i+1)
	}
	s.members = append(s.members, &member{addr: addr})
}

// learnListed adds the members that a node has listed, if there are more than are known here and may answer. Otherwise
// they are probably other addresses of the same nodes.
func (s *search) learnListed() {
	known := 0
	for _, m := range s.members {
		if m.err == nil {
			known++
		}
	}
	if known >= len(s.listed) {
		return
	}
	for _, addr := range s.listed {
		s.learn(addr)
	}
}

// follow learns the address of the leader that a member names, and asks the leader that is believed in at once. Once in
// each search it asks one that did not answer earlier: it may answer now, and a tunnel to it needs to know that it does
// not.
func (s *search) follow(hint *wire.LeaderHint, now time.Duration) {
	if s.named(hint) == nil {
		s.learn(hint.GetClientAddr())
	}
	if m, term := s.believed(); m != nil && term > m.term {
		m.term, m.failed, m.askAt, m.hinted = term, 0, now, true
	}
	if m := s.named(hint); m != nil && m.asked < s.since {
		m.hinted = true
	}
	if m, term := s.named(hint), hint.GetTerm(); m != nil && s.connected(m) && term > max(m.term, m.refuted, m.said.GetTerm()) {
		m.term = term
		s.askAgain(m)
	}
}

// askAgain soon asks a connected member which, according to another one, leads a later term than it knows of: its own report
// may be on its way, late or lost.
func (s *search) askAgain(m *member) {
	c, term := s.client, m.term
	c.clock.AfterFunc(spreadFailed+rand.N(spreadFailed), func() {
		c.mu.Lock()
		defer c.unlock()
		if m.said.GetTerm() >= term || !s.connected(m) {
			return
		}
		m.askAt, m.hinted = c.clock.Now(), true
		if m.listening {
			m.cancel()
		} else {
			s.seek(m.askAt)
		}
	})
}

// believed returns the member that leads according to the hint of the highest term that is not refuted, and that term.
// A member that is connected reports itself whether it leads.
func (s *search) believed() (leader *member, term uint64) {
	for _, m := range s.members {
		t := m.said.GetTerm()
		if m.said.GetId() == "" || t <= term {
			continue
		}
		if to := s.named(m.said); to != nil && t > to.refuted && (to == m || !s.connected(to)) {
			leader, term = to, t
		}
	}
	return leader, term
}

// claimed returns the highest term in which a member leads according to any member.
func (s *search) claimed(m *member) (term uint64) {
	for _, o := range s.members {
		if o.said.GetId() != "" && s.named(o.said) == m {
			term = max(term, o.said.GetTerm())
		}
	}
	return term
}

// connected reports whether there is a connection to a member that works.
func (s *search) connected(m *member) bool {
	cn := s.client.conn
	return m.listening || cn != nil && cn.err == nil && s.of(cn) == m && !s.client.hangs(s.client.clock.Now())
}

// refute remembers that hints which name the member are wrong, and has another member asked soon.
func (s *search) refute(m *member, now time.Duration) {
	term := s.claimed(m)
	if term <= m.refuted {
		return
	}
	m.refuted = term
	close(s.refuted)
	s.refuted = make(chan struct{})
	s.pace.hurry(now)
}

// needed reports whether to look for a leader.
func (s *search) needed(now time.Duration) bool {
	c := s.client
	switch cn := c.conn; {
	case c.halted || c.made != nil && c.made.leads || cn != nil && cn.err != nil:
		return false
	case cn == nil:
		return c.wanted() || c.anywhere.n > 0
	default:
		return !cn.leads && (c.wanted() || c.awaited()) || c.hangs(now)
	}
}

// seek asks the members that are due.
func (s *search) seek(now time.Duration) {
	s.goDirect(now)
	if !s.needed(now) {
		s.on = false
		s.arm()
		return
	}
	if !s.on {
		s.begin(now)
	}
	for _, m := range s.members {
		if m.cancel != nil && !m.listening && now >= m.asked+answerTimeout {
			s.refute(m, now)
		}
	}
	s.reconsider()
	doubted := s.client.conn != nil && s.client.conn.leads
	for m := s.due(now); m != nil; m = s.due(now) {
		s.ask(m, now, doubted)
		s.pace.asked(now)
	}
	s.seekTunnel(now)
	s.arm()
}

// begin starts a search: with the leader that is believed in, or else with any member. A connected member that follows
// is listened to first.
func (s *search) begin(now time.Duration) {
	s.on, s.since = true, now
	var connected *member
	if cn := s.client.conn; cn != nil {
		connected = s.of(cn)
	}
	for _, m := range s.members {
		if m.cancel == nil {
			m.silent, m.askAt = 0, max(m.askAt, now)
		}
	}
	s.pace = newPace(now, s.client.longestPause()/2)
	switch first, _ := s.believed(); {
	case first != nil && first != connected && first.err == nil && first.askAt <= now:
		first.hinted = true
	case connected != nil:
		connected.askAt = max(connected.askAt, now+s.span())
		if !s.client.conn.leads {
			s.pace.asked(now)
		}
	}
}

// span returns how long to listen to a member.
func (s *search) span() time.Duration { return dispersed(listenFor) }

// due returns the member to ask now, or nil: one that is said to lead, or else the one that may be asked for longest.
func (s *search) due(now time.Duration) (first *member) {
	for _, i := range rand.Perm(len(s.members)) {
		switch m := s.members[i]; {
		case now < s.dueAt(m):
		case first == nil, m.hinted && !first.hinted, m.hinted == first.hinted && m.askAt < first.askAt:
			first = m
		}
	}
	return first
}

// dueAt returns when to ask a member: never while that is under way. A connected leader is asked on another connection
// when it leaves a request unanswered, which shows whether it can be reached.
func (s *search) dueAt(m *member) time.Duration {
	cn := s.client.conn
	switch {
	case m.cancel != nil:
		return never
	case m.hinted:
		return m.askAt
	case cn == nil || s.of(cn) != m || !cn.leads:
		return max(m.askAt, s.pace.next)
	}
	if oldest := s.client.oldest(); oldest != nil {
		return max(m.askAt, oldest.sentAt+s.client.hungAfter())
	}
	return never
}

// seekAt returns when seek has to be called next.
func (s *search) seekAt(now time.Duration) time.Duration {
	at := s.directAt()
	if !s.needed(now) {
		if k := s.client.oldest(); k != nil && s.client.conn != nil {
			at = min(at, max(now, k.sentAt+answerTimeout))
		}
		return at
	}
	if !s.on {
		return now
	}
	for _, m := range s.members {
		at = min(at, s.dueAt(m))
		if m.cancel != nil && !m.listening && s.claimed(m) > m.refuted {
			at = min(at, m.asked+answerTimeout)
		}
	}
	tunnelAt, _, _ := s.tunnelAt()
	return min(at, tunnelAt)
}

// arm sets the alarm for the next step of the search.
func (s *search) arm() {
	now := s.client.clock.Now()
	if at := s.seekAt(now); at != never {
		s.client.armAt(max(at, now+time.Millisecond))
	}
}

// pause returns how long to wait after a member failed repeatedly.
func (s *search) pause(failed int) time.Duration {
	return backoff(failed, connectFirst, s.client.longestPause())
}

// noAnswer handles an inquiry that failed.
func (s *search) noAnswer(m *member, err error, now time.Duration) {
	m.failed++
	m.err, m.askAt = err, now+s.pause(m.failed)
	s.refute(m, now)
	m.said, m.node = nil, ""
	for _, o := range s.members { // perhaps at another address
		if s.named(o.said) == nil {
			s.learn(o.said.GetClientAddr())
		}
	}
	s.learnListed()
	if !errors.Is(err, context.DeadlineExceeded) && !slices.ContainsFunc(s.members, s.connected) {
		s.pace.hurry(now)
	}
	s.client.lastErr = fmt.Errorf("%s: %w", m.addr, err)
	s.client.full = cmp.Or(noPlace(err), s.client.full)
	round := m.failed
	for _, o := range s.members {
		if o.err == nil {
			return
		}
		round = min(round, o.failed)
	}
	if round != s.round && s.client.conn == nil && s.client.made == nil {
		s.round = round
		s.noneAnswered()
	}
}

// noneAnswered fails the calls that wait, if the reason is that they have no access.
func (s *search) noneAnswered() {
	s.client.note(slog.LevelWarn, "no node reached", "err", s.client.lastErr)
	for _, m := range s.members {
		if refusal := refusalOf(m.err); refusal != nil {
			s.client.refused(refusal)
			return
		}
	}
}

// ended handles the end of the client's connection. One that soon ends counts as a failure, since whatever ended it may
// happen again immediately.
func (s *search) ended(cn *conn, now time.Duration) {
	m := s.of(cn)
	if m == nil || s.client.made != nil {
		return
	}
	m.askAt = now
	if m.listening {
		m.cancel() // its next answer can be used
	}
	if cn.useful && time.Since(cn.since) >= steady {
		m.failed = 0
		return
	}
	if m.failed++; m.failed > connectFree {
		m.askAt = now + s.pause(m.failed-connectFree)
	}
}

// found ends the search: what was said before says nothing about the next one.
func (s *search) found(cn *conn) {
	s.on, s.round = false, 0
	for _, m := range s.members {
		if m.cancel != nil {
			m.cancel()
		}
		if m != s.of(cn) {
			m.said, m.err = nil, nil
		}
	}
	s.tunnel.end()
}
