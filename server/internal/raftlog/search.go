package raftlog

import (
	"maps"
	"slices"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// search is the time in which this node knows no leader. It is safe for concurrent use.
type search struct {
	self string
	log  hclog.Logger

	mu          sync.Mutex      // guards the fields below; not held while logging
	leader      string          // the last one that was logged
	term        uint64          // in which it led
	lasts       *lasting        // nil while there is a leader; counts elections
	announced   bool            // that the leader is silent was logged
	unreachable map[string]bool // the voters that did not answer since the last line
}

func newSearch(self string, log hclog.Logger) *search {
	return &search{self: self, log: log, lasts: newLasting(), unreachable: map[string]bool{}}
}

// began records that this node knows no leader.
func (s *search) began() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lasts == nil {
		s.lasts, s.announced = newLasting(), false
	}
}

// silent records that the leader's heartbeats have stayed away; leader is "" if this node has not heard of one.
func (s *search) silent(leader string) {
	s.mu.Lock()
	first := !s.announced && leader != "" && leader != s.self
	s.announced = s.announced || first
	s.mu.Unlock()
	if first {
		s.log.Warn("the leader is silent: calling an election", "leader", leader)
	}
}

// election counts an election that this node has called.
func (s *search) election() {
	s.mu.Lock()
	if s.lasts == nil {
		s.lasts = newLasting() // called while the leader still answered: it hands over, or is dead
	}
	due := s.lasts.repeat()
	elections, silence, unreachable := s.lasts.count, s.lasts.age(), slices.Sorted(maps.Keys(s.unreachable))
	if due {
		clear(s.unreachable)
	}
	s.mu.Unlock()
	if due {
		s.log.Warn("still no leader: this node calls elections and does not win", "silence", silence, "elections", elections, "unreachable", unreachable)
	}
}

// failed records that a node did not answer in an election.
func (s *search) failed(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unreachable[node] = true
}

// found records the leader. That this node leads is logged elsewhere.
func (s *search) found(leader string, term uint64) {
	s.mu.Lock()
	ended := s.lasts
	news := leader != s.self && (ended != nil || leader != s.leader || term != s.term)
	s.leader, s.term, s.lasts, s.announced = leader, term, nil, false
	clear(s.unreachable)
	s.mu.Unlock()
	switch {
	case !news:
	case ended != nil && ended.logged:
		s.log.Info("following a leader", "leader", leader, "term", term, "silence", ended.age(), "elections", ended.count)
	default:
		s.log.Info("following a leader", "leader", leader, "term", term)
	}
}
