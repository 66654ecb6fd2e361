package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/replica/alarm"
	"github.com/quorumlock/quorumlock/transport/raftstream"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Replica is one node of the cluster. All methods are safe for concurrent use.
type Replica struct {
	cfg     Config
	log     hclog.Logger
	metrics *metrics
	stores  *stores
	book    *book
	machine *fsm.Replicated
	layer   *raftstream.Layer

	proposer  *proposer
	deadlines *deadlines
	hub       *hub
	history   *history
	catchUp   *catchUp
	leaders   *leaders
	hashes    *hashes
	vigil     *vigil
	wiped     *wipedVoters
	states    *peerStates
	successor successor
	alarms    alarm.List

	// ctx ends when the node begins to stop. Goroutines that wait for raft's futures
	// do not watch it: raft answers all of them before it is shut down.
	ctx    context.Context
	cancel context.CancelFunc
	// running are this package's goroutines, but for proposer and completer.
	running  sync.WaitGroup
	pipeline sync.WaitGroup // proposer and completer
	// snapshots that this package asked raft for; they end with raft at the latest.
	snapshots sync.WaitGroup
	// changing is taken by who changes the members, see oneByOne.
	changing chan struct{}
	// node is raft, once it runs, and trans its transport, set before.
	node  atomic.Pointer[raft.Raft]
	trans *raftstream.Transport
	// began is whether the disk held any state when it was opened: what others are told
	// until raft runs. A node that only takes its time must not pass for an empty one.
	began bool

	// onAnswered is called after each entry, see OnAnswered.
	onAnswered atomic.Pointer[func()]
	// tunnels takes the connections that other nodes open for clients; nil while nobody does.
	tunnels atomic.Pointer[acceptTunnel]
	// busyWatches counts the watches that have something to tell, or rest after that.
	busyWatches atomic.Int64

	// halted is why the node has failed, once it has.
	halted atomic.Pointer[error]

	// What the node last complained of. Owned by the goroutine that settles, then by the
	// one that reports, which it starts.
	nagged   string
	naggedAt time.Time

	mu      sync.Mutex // guards what follows
	reign   *reign
	opened  bool
	closing bool
	admins  sync.WaitGroup // administrative requests under way
}

// Open opens the stores and starts the node. It returns once the node runs, which
// does not wait for a leader, nor for the other nodes of a new cluster. Errors:
// ErrReplaced, ErrOtherNode, ErrOtherCluster, ErrInUse, ErrDiverged, fsm.ErrUpgrade and those of the
// disk. It closes cfg.PeerListener if it fails.
func Open(ctx context.Context, cfg Config) (*Replica, error) {
	cfg = cfg.withDefaults()
	if err := cfg.complete(); err != nil {
		if cfg.PeerListener != nil {
			_ = cfg.PeerListener.Close()
		}
		return nil, err
	}
	r := &Replica{cfg: cfg, log: cfg.Logger, history: newHistory(), catchUp: newCatchUp(), leaders: newLeaders(), hashes: newHashes(cfg.ID), wiped: newWipedVoters(), changing: make(chan struct{}, 1)}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.machine = fsm.NewReplicated(cfg.Level, r.halt)
	r.hub = newHub(r.machine.View)
	r.vigil = newVigil(r)
	r.proposer = newProposer(r.apply, r.refusal)
	r.deadlines = newDeadlines(r.proposeEnding)
	if err := r.openDisk(); err != nil {
		_ = cfg.PeerListener.Close()
		return nil, err
	}
	if err := r.openNetwork(); err != nil {
		return nil, errors.Join(err, cfg.PeerListener.Close(), r.stores.close())
	}
	r.pipeline.Go(r.proposer.run)
	r.pipeline.Go(r.complete)
	r.running.Go(r.deadlines.run)
	r.running.Go(func() { r.leaders.run(r.ctx) })
	if err := r.start(ctx); err != nil {
		r.abandon()
		return nil, err
	}
	if err := r.failedMeanwhile(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// failedMeanwhile ends Open: from here on a failure is told to Halt.
func (r *Replica) failedMeanwhile(ctx context.Context) error {
	r.mu.Lock()
	cause := r.halted.Load()
	r.opened = true
	r.mu.Unlock()
	if cause == nil {
		return nil
	}
	_ = r.Close(ctx) // the cause says more
	return *cause
}

func (r *Replica) openDisk() (err error) {
	if r.metrics, err = newMetrics(r); err != nil {
		return err
	}
	if r.stores, err = openStores(r.cfg, r.diskFailed); err != nil {
		r.metrics.close()
		return r.wayOut(err)
	}
	if r.stores.overlap != nil {
		r.stores.overlap.leads = r.leadsOthers
	}
	incarnation, err := openIdentity(r.cfg, r.stores.stable)
	if err == nil {
		r.states, err = openPeerStates(r)
	}
	if err == nil {
		err = r.loadAlarms()
	}
	if err == nil {
		r.book, err = openBook(r.cfg, incarnation, r.stores.stable)
	}
	if err == nil {
		err = r.stores.forgetCutBeginning()
	}
	if err == nil {
		r.began, err = r.stores.begun()
	}
	if err != nil {
		r.metrics.close()
		return errors.Join(r.wayOut(err), r.stores.close())
	}
	r.book.live, r.book.vouchers, r.book.states = r.live, newVouchers(r.askVouch), r.states
	r.stores.guard.deletable = r.keepsCommitted
	return nil
}

// live looks into the machine, if that has caught up with a record of the revision.
func (r *Replica) live(revision uint64, look func(*fsm.Machine)) (fresh bool) {
	r.machine.View(func(m *fsm.Machine) {
		if fresh = m.ClusterID() != "" && m.Revision() >= revision; fresh {
			look(m)
		}
	})
	return fresh
}

func (r *Replica) openNetwork() error {
	cfg := raftstream.Config{
		Listener:  r.cfg.PeerListener,
		Advertise: r.cfg.Advertise.Peer,
		Network:   r.cfg.Network,
		Identity:  r.book,
		TLS:       r.cfg.PeerTLS,
		Handler:   r.serveControl,
		Logger:    r.log.Named("peers"),
	}
	if !r.cfg.NoTunnels {
		cfg.Tunnels, cfg.MaxTunnels = r.tunnelAsked, r.cfg.MaxTunnels
	}
	layer, err := raftstream.New(cfg)
	r.mu.Lock()
	r.layer = layer
	r.mu.Unlock()
	if err == nil {
		if err = r.metrics.showPeers(layer); err != nil {
			err = errors.Join(err, layer.Close())
		}
	}
	if err != nil {
		r.metrics.close()
	}
	return err
}

// start runs raft if this node has state, and asks around if it has none.
func (r *Replica) start(ctx context.Context) error {
	if r.began {
		return r.startAgain(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*probeTimeout)
	defer cancel()
	done, err := r.settle(ctx, 0)
	if err != nil || done {
		return err
	}
	r.running.Go(r.settleDown)
	return nil
}

// startAgain runs raft on the state of this node, unless another one knows that it went back in time.
func (r *Replica) startAgain(ctx context.Context) error {
	r.askAround(ctx)
	if cause := r.halted.Load(); cause != nil {
		return *cause
	}
	return r.startRaft(nil)
}

func (r *Replica) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(r.cfg.ID)
	c.HeartbeatTimeout = r.cfg.HeartbeatTimeout
	c.ElectionTimeout = r.cfg.ElectionTimeout
	c.LeaderLeaseTimeout = r.cfg.LeaderLeaseTimeout
	c.CommitTimeout = r.cfg.CommitTimeout
	c.MaxAppendEntries = 64
	c.TrailingLogs = r.cfg.TrailingLogs
	c.SnapshotThreshold = r.cfg.SnapshotThreshold
	c.SnapshotInterval = r.cfg.SnapshotInterval
	c.ShutdownOnRemove = false // a node that was removed says so instead of vanishing
	c.NoLegacyTelemetry = true
	c.Logger = r.log.Named("raft")
	return c
}

// startRaft runs raft, with seen as the beginning of a new cluster.
func (r *Replica) startRaft(seen []*wire.Member) (err error) {
	conf := r.raftConfig()
	if err := raft.ValidateConfig(conf); err != nil {
		return fmt.Errorf("raft's settings: %w", err)
	}
	trans := raftstream.NewTransport(r.layer, raftstream.TransportConfig{
		Resolve:  r.resolve,
		Awaited:  r.awaited,
		Follows:  r.follows,
		Written:  r.stores.isWritten,
		Observer: r.states,
		Timeout:  max(2*time.Second, 2*r.cfg.ElectionTimeout),
		Logger:   r.log.Named("net"),
	})
	if seen != nil {
		if err := r.begin(conf, trans, seen); err != nil {
			return errors.Join(err, trans.Close())
		}
	}
	if r.hashes.replayed, err = r.stores.log.LastIndex(); err != nil {
		return errors.Join(err, trans.Close())
	}
	node, err := r.newRaft(conf, trans)
	if err != nil {
		return errors.Join(err, trans.Close())
	}
	r.stores.guard.running.Store(true)
	r.trans = trans
	r.node.Store(node)
	r.running.Go(r.lead)
	r.running.Go(r.followUp)
	r.running.Go(r.keep)
	r.running.Go(r.report)
	r.running.Go(r.hashStates)
	r.running.Go(r.tellHashes)
	r.running.Go(r.keepMemory)
	r.running.Go(r.repeatAlarms)
	if !r.cfg.NoFailoverHint {
		r.running.Go(r.vigil.run)
		r.running.Go(r.watchDisk)
	}
	return nil
}

// begin writes the beginning of a cluster to the disk: first who was seen, so that
// nobody's memory can be lost unnoticed from here on.
func (r *Replica) begin(conf *raft.Config, trans raft.Transport, seen []*wire.Member) error {
	r.log.Info("beginning a new cluster", "nodes", len(r.cfg.Cluster), "seen", len(seen))
	if _, err := r.book.keep(0, &wire.Membership{Members: r.initialMembers(seen)}); err != nil {
		return fmt.Errorf("begin the cluster: %w", err)
	}
	if err := raft.BootstrapCluster(conf, r.stores.log, r.stores.guard, r.stores.snapshots, trans, r.initialVoters()); err != nil {
		return fmt.Errorf("begin the cluster: %w", err)
	}
	return nil
}

// newRaft returns what made the state unreadable, which raft only logs or panics with.
func (r *Replica) newRaft(conf *raft.Config, trans raft.Transport) (node *raft.Raft, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("open raft: %v", reason)
		}
		if cause := r.halted.Load(); err != nil && cause != nil {
			err = *cause
		}
	}()
	return raft.NewRaft(conf, recorder{r.machine, r.history, r.hashes, r.catchUp, r.states, r.proposer.awaited}, r.stores.log, r.stores.guard, r.stores.snapshots, trans)
}

// resolve prefers the replicated address of a node to the one in raft's configuration,
// which stays what it was when the node was added: raft v1.7.3 reads a peer's entry
// without its lock while it changes its address.
func (r *Replica) resolve(id raft.ServerID, addr raft.ServerAddress) raft.ServerAddress {
	_, _, members := r.book.page()
	if known := members[string(id)].GetPeerAddr(); known != "" {
		return raft.ServerAddress(known)
	}
	return addr
}

// awaited tells whether this node leads another one that is a member.
func (r *Replica) awaited(id raft.ServerID) bool {
	node := r.node.Load()
	if node == nil || r.current() == nil {
		return false
	}
	return slices.ContainsFunc(node.GetConfiguration().Configuration().Servers, func(s raft.Server) bool { return s.ID == id })
}

// follows reports whether raft follows that node in its present term. With a new term raft
// forgets the leader.
func (r *Replica) follows(id raft.ServerID) bool {
	node := r.node.Load()
	if node == nil || node.State() != raft.Follower {
		return false
	}
	_, leader := node.LeaderWithID()
	return leader == id
}

// leadsOthers tells whether raft leads and needs another voter to commit anything.
func (r *Replica) leadsOthers() bool {
	node := r.node.Load()
	if node == nil || node.State() != raft.Leader {
		return false
	}
	voters := 0
	for _, s := range node.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter {
			voters++
		}
	}
	return voters > 1
}

func (r *Replica) apply(data []byte, timeout time.Duration) raft.ApplyFuture {
	if r.halted.Load() != nil {
		return failed{raft.ErrNotLeader}
	}
	return r.node.Load().Apply(data, timeout)
}

// abandon undoes a failed Open.
func (r *Replica) abandon() {
	r.cancel()
	r.history.close()
	r.deadlines.close()
	r.proposer.stop()
	r.running.Wait()
	r.pipeline.Wait()
	_ = r.layer.Close()
	_ = r.stores.close()
	r.metrics.close()
}

// Close hands leadership over, as long as ctx allows, then stops and waits for every
// goroutine.
func (r *Replica) Close(ctx context.Context) error {
	r.mu.Lock()
	if r.closing {
		r.mu.Unlock()
		return nil
	}
	r.closing = true
	r.mu.Unlock()
	r.cancel()
	r.history.close()
	r.abdicate("this node is stopping")
	r.admins.Wait()
	r.handOver(ctx)
	r.deadlines.close()
	r.running.Wait()
	// Raft forgets futures of entries that are on their way to the machine when it is
	// shut down, so the pipeline has to be empty before.
	r.proposer.stop()
	r.pipeline.Wait()
	var err error
	if node := r.node.Load(); node != nil {
		err = node.Shutdown().Error()
	}
	r.snapshots.Wait()
	r.metrics.close()
	return errors.Join(err, r.layer.Close(), r.stores.close())
}

// handOver makes another node the leader before this one goes.
func (r *Replica) handOver(ctx context.Context) {
	node := r.node.Load()
	if node == nil || node.State() != raft.Leader || r.halted.Load() != nil || ctx.Err() != nil || r.voters() < 2 {
		return
	}
	if err := r.passOn(ctx); err != nil {
		r.log.Warn("leadership was not handed over", "error", err)
	}
}

// halt stops serving for good and tells the owner, once. During Open the error is
// Open's to return. It may be called with raft's own goroutine.
func (r *Replica) halt(err error) {
	r.mu.Lock()
	if r.layer != nil { // else the disk is being opened
		r.layer.Mute()
	}
	first, opened := r.halted.CompareAndSwap(nil, &err), r.opened
	if first && opened && !r.closing {
		// Some of raft's goroutines may go on with heartbeats while another one hangs, and
		// the process may be unable to end: nobody must take this node for a leader.
		r.running.Go(func() { _ = r.layer.Close() })
	}
	r.mu.Unlock()
	if !first {
		return
	}
	r.abdicate("this node has failed")
	r.history.close()
	if opened {
		r.cfg.Halt(err)
	}
	// Last, since the log may be on the disk that hangs.
	r.log.Error("this node must stop", "error", err)
}

func (r *Replica) diskFailed(err error) { r.halt(r.wayOut(err)) }

// wayOut says what to do about damage.
func (r *Replica) wayOut(err error) error {
	if !errors.Is(err, ErrDamaged) {
		return err
	}
	if len(r.cfg.Cluster) < 2 && r.cfg.Stores.Log == nil {
		return fmt.Errorf("%w\nNothing was changed. If this node is all there is of its cluster, only a backup has what is lost here: "+
			"start a new one on an empty --data-dir, and run\n  qlock snapshot restore FILE --reason lost\n"+
			"If there are others, replace it: %s", err, r.replacement("damaged"))
	}
	return fmt.Errorf("%w\nNothing was changed. The other nodes have all that was acknowledged; this one must not vote without it. Replace it: %s\n"+
		"That needs a leader. If a majority of the nodes has lost its data, there can be none. %s", err, r.replacement("damaged"), r.startOver(nil))
}

// replacement are the commands that keep this node's directory for whoever looks into what
// became of it, and bring the node back without it.
func (r *Replica) replacement(became string) string {
	id, dir := r.cfg.ID, r.cfg.DataDir
	return fmt.Sprintf("run\n  mv %s %s.%s\n  qlock cluster remove %s --reason replaced\nstart this node again, and run\n  qlock cluster add %s %s --reason replaced", dir, dir, became, id, id, r.cfg.Advertise.Peer)
}

// View runs f on the state machine under a read lock: keep it short, change nothing.
func (r *Replica) View(f func(*fsm.Machine)) { r.machine.View(f) }

// Fork is a copy of the state machine for long reads; it costs nothing.
func (r *Replica) Fork() *fsm.Machine { return r.machine.Fork() }
