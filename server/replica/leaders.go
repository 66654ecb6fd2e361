package replica

import (
	"context"
	"sync"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// leaders notifies subscribers of leadership changes. A slow subscriber gets only the latest change. The hint
// includes the term, so every subscriber notices that leadership has changed.
type leaders struct {
	mu   sync.Mutex
	last *wire.LeaderHint
	subs map[*func(*wire.LeaderHint)]struct{}
	wake chan struct{}
}

func newLeaders() *leaders {
	return &leaders{last: &wire.LeaderHint{}, subs: map[*func(*wire.LeaderHint)]struct{}{}, wake: make(chan struct{}, 1)}
}

// change records the current leader, and notifies the subscribers if it differs from the previous one.
func (l *leaders) change(hint *wire.LeaderHint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if proto.Equal(hint, l.last) {
		return
	}
	l.last = hint
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run calls the subscribers until ctx ends.
func (l *leaders) run(ctx context.Context) {
	for {
		select {
		case <-l.wake:
			hint, subs := l.news()
			for _, f := range subs {
				(*f)(proto.CloneOf(hint))
			}
		case <-ctx.Done():
			return
		}
	}
}

func (l *leaders) news() (*wire.LeaderHint, []*func(*wire.LeaderHint)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	subs := make([]*func(*wire.LeaderHint), 0, len(l.subs))
	for f := range l.subs {
		subs = append(subs, f)
	}
	return l.last, subs
}

// OnLeader calls f for every change of Leader, in order, on one goroutine. f must not block; a slow f gets
// only the latest change. Two successive leaderships of one node differ in their term.
func (r *Replica) OnLeader(f func(*wire.LeaderHint)) (cancel func()) {
	l := r.leaders
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subs[&f] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.subs, &f)
	}
}

// leader returns the leading member, as far as this node knows.
func (r *Replica) leader() (m *wire.Member, term uint64, ok bool) {
	node := r.cluster.Raft()
	if node == nil {
		return nil, 0, false
	}
	term = node.CurrentTerm()
	_, id := node.LeaderWithID()
	if next, since := r.handover.Successor(term); next != "" {
		id, term = raft.ServerID(next), since
	}
	if id == "" || string(id) == r.cfg.ID && r.halted.Load() != nil {
		return nil, 0, false
	}
	r.machine.View(func(machine *fsm.Machine) { m, ok = machine.Member(string(id)) })
	if !ok {
		m = &wire.Member{Id: string(id)}
	}
	if m.Id == r.cfg.ID {
		m = r.self()
	}
	return m, term, true
}

// Leader returns what this node knows of the leader. The hint is empty if that is nothing.
func (r *Replica) Leader() *wire.LeaderHint {
	m, term, ok := r.leader()
	if !ok {
		return &wire.LeaderHint{}
	}
	return &wire.LeaderHint{Id: m.Id, ClientAddr: m.ClientAddr, Term: term}
}

// LeaderHTTP returns the advertised HTTP address of the leader, "" if there is none.
func (r *Replica) LeaderHTTP() string {
	m, _, _ := r.leader()
	return m.GetHttpAddr()
}

// self returns this node as it reports itself.
func (r *Replica) self() *wire.Member {
	a := r.cfg.Advertise
	return &wire.Member{Id: r.cfg.ID, Incarnation: r.stores.Incarnation, PeerAddr: a.Peer, ClientAddr: a.Client, HttpAddr: a.HTTP, Level: r.cfg.Level}
}
