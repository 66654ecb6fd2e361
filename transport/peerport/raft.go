package peerport

import (
	"io"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// TransportConfig configures how raft uses a Layer.
type TransportConfig struct {
	// Resolve returns a node's current address; addr is its address in raft's configuration. Default: addr.
	Resolve func(id raft.ServerID, addr raft.ServerAddress) raft.ServerAddress
	// Awaited reports whether entries for a node that cannot be reached may wait until it can: this node
	// leads, and that one is a member. It must not block. Default: they may not.
	Awaited func(id raft.ServerID) bool
	// Follows reports whether raft follows that node as its leader in the current term. A call for an
	// election is accepted only from that leader. It must not block. Default: it does not.
	Follows func(id raft.ServerID) bool
	// Written reports whether every entry up to index is on this node's own disk. Until then, raft does not
	// learn that another node has that entry. If ok is false, again is closed when Written should be called
	// again, or is nil if the answer will not change. It must not block. Default: all entries are written.
	Written func(index uint64) (ok bool, again <-chan struct{})
	// Observer observes what the other nodes send to raft. Default: none.
	Observer Observer
	// Timeout bounds dialling and each exchange; for snapshots it grows with their size. It is also how
	// long connections to a node that vanished silently are kept, so it should not be many election
	// timeouts. Default: 2 s.
	Timeout time.Duration
	// MaxPool is the number of idle connections kept to each node. Default: 3.
	MaxPool int
	// Logger is raft's network log. Default: none.
	Logger hclog.Logger
}

// Observer observes what other nodes' calls and answers prove to be on their disks. No method may block.
type Observer interface {
	// Incarnation returns the incarnation under which a node was last met, "" if it was not.
	Incarnation(id string) string
	// InTerm is called with the term that a node is in.
	InTerm(incarnation string, term uint64)
	// Voted is called when a node has voted in a term.
	Voted(incarnation string, term uint64)
	// Acknowledged is called when a node has every entry up to index.
	Acknowledged(incarnation string, index uint64)
	// Announced is called with each commit index that a leader announces and raft accepts.
	Announced(incarnation string, index uint64)
}

// unobserved is an Observer that does nothing.
type unobserved struct{}

func (unobserved) Incarnation(string) string   { return "" }
func (unobserved) InTerm(string, uint64)       {}
func (unobserved) Voted(string, uint64)        {}
func (unobserved) Acknowledged(string, uint64) {}
func (unobserved) Announced(string, uint64)    {}

// Transport is raft's NetworkTransport on a Layer. It is a raft.Transport, with pre-vote and Close.
type Transport struct {
	*raft.NetworkTransport
	layer    *Layer
	resolve  func(raft.ServerID, raft.ServerAddress) raft.ServerAddress
	awaited  func(raft.ServerID) bool
	written  func(uint64) (bool, <-chan struct{})
	follows  func(raft.ServerID) bool
	observer Observer
	calls    chan raft.RPC // from other nodes, to raft
	pooled   int           // limit of the idle connections that raft keeps to a node
}

var (
	_ raft.StreamLayer = (*Layer)(nil)
	_ raft.Transport   = (*Transport)(nil)
	_ raft.WithPreVote = (*Transport)(nil)
	_ raft.WithClose   = (*Transport)(nil)
)

// NewTransport starts raft's transport on l. Its Close, which raft calls after its shutdown, closes l.
//
// At most two exchanges are in flight to a node: with more, entries would queue in the network instead of
// in the proposer, where they are batched (hashicorp/raft#541).
func NewTransport(l *Layer, cfg TransportConfig) *Transport {
	if cfg.Resolve == nil {
		cfg.Resolve = func(_ raft.ServerID, addr raft.ServerAddress) raft.ServerAddress { return addr }
	}
	if cfg.Awaited == nil {
		cfg.Awaited = func(raft.ServerID) bool { return false }
	}
	if cfg.Follows == nil {
		cfg.Follows = func(raft.ServerID) bool { return false }
	}
	if cfg.Observer == nil {
		cfg.Observer = unobserved{}
	}
	if cfg.Written == nil {
		cfg.Written = func(uint64) (bool, <-chan struct{}) { return true, nil }
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	setDefault(&cfg.Timeout, 2*time.Second)
	setDefault(&cfg.MaxPool, 3)
	t := &Transport{
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream:          dialOnly{l},
			MaxPool:         cfg.MaxPool,
			MaxRPCsInFlight: 2,
			Timeout:         cfg.Timeout,
			Logger:          cfg.Logger,
		}),
		layer:    l,
		resolve:  cfg.Resolve,
		awaited:  cfg.Awaited,
		written:  cfg.Written,
		follows:  cfg.Follows,
		observer: cfg.Observer,
		calls:    make(chan raft.RPC),
		pooled:   cfg.MaxPool,
	}
	l.spawn(t.acceptAll)
	return t
}

// SetHeartbeatHandler does nothing, deliberately. Raft offers a handler that answers heartbeats on the
// connection's goroutine while its main loop is busy. That handler raises the term concurrently with the
// main loop, so a leader that is deposed by such a heartbeat can still append an entry of its own and
// mark it with the new term (hashicorp/raft#695). The result is two different entries with the same index
// and term, which raft's safety proof rules out. Without a handler, heartbeats go through the main loop
// like everything else.
func (t *Transport) SetHeartbeatHandler(func(raft.RPC)) {}

// Close stops the transport and the Layer. The Layer closes all connections, including those that
// NetworkTransport keeps in its pool. Close then waits until raft has released the accepted ones.
func (t *Transport) Close() error {
	err := t.NetworkTransport.Close()
	t.layer.raftConns.Wait()
	return err
}

func (t *Transport) at(id raft.ServerID, addr raft.ServerAddress) raft.ServerAddress {
	return target(id, t.resolve(id, addr))
}

// EncodePeer implements raft.Transport. Raft stores this as the candidate it voted for, and treats a
// second request with the same value as a repetition. So it contains the node's id and not only its
// address: otherwise two nodes that advertise the same address by mistake would both get the vote of a
// third, and lead in the same term.
func (t *Transport) EncodePeer(id raft.ServerID, addr raft.ServerAddress) []byte {
	return []byte(target(id, addr))
}

// DecodePeer implements raft.Transport. It returns the address without the node's id.
func (t *Transport) DecodePeer(peer []byte) raft.ServerAddress {
	_, addr, err := parseTarget(raft.ServerAddress(peer))
	if err != nil {
		return raft.ServerAddress(peer)
	}
	return raft.ServerAddress(addr)
}

// AppendEntriesPipeline implements raft.Transport.
func (t *Transport) AppendEntriesPipeline(id raft.ServerID, addr raft.ServerAddress) (raft.AppendPipeline, error) {
	under, err := t.NetworkTransport.AppendEntriesPipeline(id, t.at(id, addr))
	if err != nil {
		return nil, err
	}
	from := t.observer.Incarnation(string(id))
	return newPipeline(under, t.mayDeliver, func(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) {
		t.appended(from, args, resp)
	}), nil
}

// AppendEntries implements raft.Transport.
func (t *Transport) AppendEntries(id raft.ServerID, addr raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	call := func() error {
		from := t.observer.Incarnation(string(id))
		err := t.onFresh(func() error { return t.NetworkTransport.AppendEntries(id, t.at(id, addr), args, resp) })
		if err == nil {
			t.appended(from, args, resp)
		}
		return err
	}
	if isHeartbeat(args) {
		return call()
	}
	if err := t.untilReachable(id, addr, call); err != nil {
		return err
	}
	return t.awaitWritten(args, resp)
}

// RequestVote implements raft.Transport.
func (t *Transport) RequestVote(id raft.ServerID, addr raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	from := t.observer.Incarnation(string(id))
	err := t.onFresh(func() error { return t.NetworkTransport.RequestVote(id, t.at(id, addr), args, resp) })
	if err == nil {
		t.observer.InTerm(from, resp.Term)
	}
	if err == nil && resp.Granted {
		t.observer.Voted(from, args.Term)
	}
	return err
}

// RequestPreVote implements raft.WithPreVote.
func (t *Transport) RequestPreVote(id raft.ServerID, addr raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return t.onFresh(func() error { return t.NetworkTransport.RequestPreVote(id, t.at(id, addr), args, resp) })
}

// InstallSnapshot implements raft.Transport.
func (t *Transport) InstallSnapshot(id raft.ServerID, addr raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	from := t.observer.Incarnation(string(id))
	err := t.untilReachable(id, addr, func() error { return t.NetworkTransport.InstallSnapshot(id, t.at(id, addr), args, resp, data) })
	if err == nil && resp.Success {
		t.observer.Acknowledged(from, args.LastLogIndex)
	}
	return err
}

// TimeoutNow implements raft.Transport.
func (t *Transport) TimeoutNow(id raft.ServerID, addr raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return t.onFresh(func() error { return t.NetworkTransport.TimeoutNow(id, t.at(id, addr), args, resp) })
}

// onFresh repeats a call, which must be safe to execute twice, as long as it uses pooled connections that
// the other end has closed. Raft keeps pooled connections to a node that was restarted, and a vote that
// is lost on one of them costs an election timeout.
func (t *Transport) onFresh(call func() error) (err error) {
	for range t.pooled + 1 {
		if err = call(); !closedByPeer(err) {
			break
		}
	}
	return err
}

// CallElection makes raft start an election immediately, as if a leader had transferred leadership to it:
// without pre-vote, and the others vote although they know of a leader. Raft does so in any state. The
// caller must have made sure that the leader is dead.
func (t *Transport) CallElection() error {
	self, _ := t.layer.cfg.Identity.Self()
	defer t.layer.Disconnect(self)
	me := raft.ServerID(self)
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(me), Addr: t.EncodePeer(me, t.LocalAddr())}
	return t.TimeoutNow(me, t.LocalAddr(), &raft.TimeoutNowRequest{RPCHeader: header}, &raft.TimeoutNowResponse{})
}
