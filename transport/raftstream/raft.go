package raftstream

import (
	"io"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// TransportConfig says how raft uses a Layer.
type TransportConfig struct {
	// Resolve gives a node's current address; addr is the one in raft's configuration.
	// Default: that one.
	Resolve func(id raft.ServerID, addr raft.ServerAddress) raft.ServerAddress
	// Awaited tells whether entries for a node that cannot be reached may wait until it
	// can: this node leads, and that one is a member. It must not block. Default: they may
	// not.
	Awaited func(id raft.ServerID) bool
	// Follows reports whether raft follows that node as its leader, in its present term. Only
	// from that one a call for an election is taken. It must not block. Default: it does not.
	Follows func(id raft.ServerID) bool
	// Written tells whether every entry up to index is on this node's own disk. Raft is not told
	// before that another node has that entry. If it is not, again closes when it is time to ask
	// once more, or is nil if it never will be. It must not block. Default: all are.
	Written func(index uint64) (ok bool, again <-chan struct{})
	// Observer is told what the other nodes say to raft. Default: nobody is.
	Observer Observer
	// Timeout bounds dialling and each exchange, snapshots in proportion to their size. It
	// is also how long a node that vanished without a word keeps its old connections, so it
	// should not be many election time-outs. Default: 2 s.
	Timeout time.Duration
	// MaxPool is how many idle connections are kept to each node. Default: 3.
	MaxPool int
	// Logger is raft's network log. Default: none.
	Logger hclog.Logger
}

// Observer is told what other nodes' calls and answers prove to be on their disks. None of its
// methods may block.
type Observer interface {
	// Incarnation is the one under which a node was last met, empty if it was not.
	Incarnation(id string) string
	// InTerm is told of the term that a node is in.
	InTerm(incarnation string, term uint64)
	// Voted is told that a node has voted in a term.
	Voted(incarnation string, term uint64)
	// Acknowledged is told that a node has every entry up to index.
	Acknowledged(incarnation string, index uint64)
	// Announced is told of each commit index that a leader announces and raft accepts.
	Announced(incarnation string, index uint64)
}

// unobserved is an Observer that nobody is behind.
type unobserved struct{}

func (unobserved) Incarnation(string) string   { return "" }
func (unobserved) InTerm(string, uint64)       {}
func (unobserved) Voted(string, uint64)        {}
func (unobserved) Acknowledged(string, uint64) {}
func (unobserved) Announced(string, uint64)    {}

// Transport is raft's NetworkTransport on a Layer. It is a raft.Transport, with pre-vote
// and Close.
type Transport struct {
	*raft.NetworkTransport
	layer    *Layer
	resolve  func(raft.ServerID, raft.ServerAddress) raft.ServerAddress
	awaited  func(raft.ServerID) bool
	written  func(uint64) (bool, <-chan struct{})
	follows  func(raft.ServerID) bool
	observer Observer
	calls    chan raft.RPC // from other nodes, for raft
	pooled   int           // idle connections that raft keeps to a node, at most
}

var (
	_ raft.StreamLayer = (*Layer)(nil)
	_ raft.Transport   = (*Transport)(nil)
	_ raft.WithPreVote = (*Transport)(nil)
	_ raft.WithClose   = (*Transport)(nil)
)

// NewTransport starts raft's transport on l. Its Close, which raft calls when it has shut
// down, closes l.
//
// At most two exchanges are in flight to a node: with more, entries queue in the network
// rather than in the proposer, where they would be batched (hashicorp/raft#541).
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

// SetHeartbeatHandler does nothing, on purpose. Raft offers a handler that answers
// heartbeats on the connection's goroutine while its main loop is busy. That handler raises
// the term beside the main loop, so a leader that is deposed by such a heartbeat can still
// append an entry of its own and mark it with the new term (hashicorp/raft#695): two
// different entries with one index and one term, which raft's safety rests on never
// happening. Without a handler heartbeats go through the main loop like everything else.
func (t *Transport) SetHeartbeatHandler(func(raft.RPC)) {}

// Close stops the transport and the Layer, which closes all connections, also those that
// NetworkTransport keeps for later, and waits until raft has let go of the accepted ones.
func (t *Transport) Close() error {
	err := t.NetworkTransport.Close()
	t.layer.lent.Wait()
	return err
}

func (t *Transport) at(id raft.ServerID, addr raft.ServerAddress) raft.ServerAddress {
	return target(id, t.resolve(id, addr))
}

// EncodePeer implements raft.Transport. Raft remembers whom it voted for by this, and takes
// a second request that looks the same for a repeated one. So it names the node, not only
// its address: two nodes that advertise one address by mistake would both get the vote of
// a third, and lead in one term.
func (t *Transport) EncodePeer(id raft.ServerID, addr raft.ServerAddress) []byte {
	return []byte(target(id, addr))
}

// DecodePeer implements raft.Transport: the address without the node.
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
	return newPipeline(under, t.settled, func(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) {
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
	if err := t.patiently(id, addr, call); err != nil {
		return err
	}
	return t.settle(args, resp)
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
	err := t.patiently(id, addr, func() error { return t.NetworkTransport.InstallSnapshot(id, t.at(id, addr), args, resp, data) })
	if err == nil && resp.Success {
		t.observer.Acknowledged(from, args.LastLogIndex)
	}
	return err
}

// TimeoutNow implements raft.Transport.
func (t *Transport) TimeoutNow(id raft.ServerID, addr raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return t.onFresh(func() error { return t.NetworkTransport.TimeoutNow(id, t.at(id, addr), args, resp) })
}

// onFresh repeats a call, which may be executed twice, for as long as it meets connections
// of raft's pool that the other end has closed: raft keeps those of a node that was
// restarted meanwhile, and a vote that is lost to one costs an election's time-out.
func (t *Transport) onFresh(call func() error) (err error) {
	for range t.pooled + 1 {
		if err = call(); !closedByPeer(err) {
			break
		}
	}
	return err
}

// CallElection has raft stand for election at once, as if a leader had handed over to it:
// without pre-vote, and the others vote though they know of a leader. Raft does so in
// whatever state it is. Whoever calls this has made sure that the leader is dead.
func (t *Transport) CallElection() error {
	self, _ := t.layer.cfg.Identity.Self()
	defer t.layer.Disconnect(self)
	me := raft.ServerID(self)
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(me), Addr: t.EncodePeer(me, t.LocalAddr())}
	return t.TimeoutNow(me, t.LocalAddr(), &raft.TimeoutNowRequest{RPCHeader: header}, &raft.TimeoutNowResponse{})
}
