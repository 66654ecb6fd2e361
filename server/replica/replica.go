package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/server/consistency"
	"github.com/quorumlock/quorumlock/server/eventlog"
	"github.com/quorumlock/quorumlock/server/failover/monitor"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/internal/alarm"
	"github.com/quorumlock/quorumlock/server/internal/backup/schedule"
	"github.com/quorumlock/quorumlock/server/internal/bootstrap"
	"github.com/quorumlock/quorumlock/server/internal/catchup"
	"github.com/quorumlock/quorumlock/server/internal/cluster"
	"github.com/quorumlock/quorumlock/server/internal/command"
	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/internal/handover"
	"github.com/quorumlock/quorumlock/server/internal/metrics"
	"github.com/quorumlock/quorumlock/server/internal/peers"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/internal/raftlog"
	"github.com/quorumlock/quorumlock/server/internal/samples"
	"github.com/quorumlock/quorumlock/server/internal/seeds"
	"github.com/quorumlock/quorumlock/server/internal/watch"
	"github.com/quorumlock/quorumlock/server/membership"
	"github.com/quorumlock/quorumlock/server/membership/autopilot"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Replica is one node of the cluster. All methods are safe for concurrent use.
type Replica struct {
	cfg       Config
	log       hclog.Logger
	metrics   *metrics.Metrics
	stores    *storage.Stores
	directory *directory.Directory
	machine   *fsm.Replicated
	layer     *peerport.Layer

	*command.Processor
	eventLog *eventlog.Log
	catchUp  *catchup.Tracker
	rounds   *catchup.Rounds
	watcher  *watch.Watcher
	leaders  *cluster.LeaderChanges
	checker  *consistency.Checker
	peers    *peers.Peers
	handover *handover.Handover
	members  *membership.Members
	pilot    *autopilot.Autopilot
	alarms   *alarm.Alarms
	backups  *schedule.Keeper // nil without a place for backups
	sampler  *samples.Sampler

	// ctx is cancelled when the node begins to stop. Goroutines that wait for raft's futures do not watch it:
	// raft completes all futures before it is shut down.
	ctx    context.Context
	cancel context.CancelFunc
	// running tracks this package's goroutines, except proposer and completer.
	running  sync.WaitGroup
	pipeline sync.WaitGroup // proposer and completer
	// snapshots tracks the snapshots that this package requested from raft. They end with raft at the latest.
	snapshots sync.WaitGroup
	cluster   cluster.Cluster
	prober    probe.Prober
	// trans is raft's transport. It is set before raft runs.
	trans *peerport.Transport
	// monitor calls an election when the leader's process has died; nil until raft runs, or if that is off.
	monitor atomic.Pointer[monitor.Monitor]
	// began is set if the disk held any state when it was opened. Other nodes see it until raft runs: a node
	// that is slow to start must not be taken for an empty one.
	began bool

	// applyEntry hands an entry to raft. It is r.apply, except in tests.
	applyEntry atomic.Pointer[func(data []byte, timeout time.Duration) raft.ApplyFuture]
	// tunnels accepts the connections that other nodes open for clients, forwards those for requests of HTTP clients, and
	// keys those for requests of Redis clients; nil while nothing does.
	tunnels, forwards, keys atomic.Pointer[acceptTunnel]

	// halted is why the node has failed, nil until then.
	halted atomic.Pointer[error]

	bootstrap *bootstrap.Bootstrap
	// waiting logs what the node waits for. Used by the goroutine that bootstraps the node, then by the report goroutine,
	// which it starts.
	waiting *ratelog.Repeated

	mu         sync.Mutex // guards the fields below
	leadership *leadership
	opened     bool
	closing    bool
	admins     sync.WaitGroup // administrative requests in flight
}

// Open opens the stores and starts the node. It returns once the node runs. It does not wait for a leader or,
// in a new cluster, for the other nodes. It returns status.ErrReplaced, status.ErrOtherCluster, status.ErrDiverged,
// status.ErrRolledBack, status.ErrForked, fsm.ErrUpgrade, or an error of package storage. If it fails, it closes
// cfg.PeerListener.
func Open(ctx context.Context, cfg Config) (*Replica, error) {
	cfg = cfg.withDefaults()
	if err := cfg.complete(); err != nil {
		if cfg.PeerListener != nil {
			_ = cfg.PeerListener.Close()
		}
		return nil, err
	}
	r := &Replica{cfg: cfg, log: cfg.Logger, eventLog: eventlog.New(), catchUp: catchup.New(), leaders: cluster.NewLeaderChanges()}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.machine = fsm.NewReplicated(cfg.Level, r.halt)
	r.checker = r.newChecker()
	r.metrics, r.alarms = metrics.New(cfg.Registry), r.newAlarms()
	r.sampler = samples.New(r.totals)
	r.pilot = autopilot.New(autopilot.Config{NodeID: cfg.ID, Settings: cfg.Autopilot, Machine: r.machine, Cluster: &r.cluster, Logger: r.log})
	r.metrics.Committed, r.metrics.Synced = r.sampler.Commits.Observe, r.sampler.DiskSyncs.Observe
	r.Processor = r.newProcessor()
	if err := r.openBackups(); err != nil {
		_ = cfg.PeerListener.Close()
		return nil, err
	}
	r.watcher = &watch.Watcher{EventLog: r.eventLog, CatchUp: r.catchUp, Prove: r.Prove, Stops: r.ctx.Done(), Ends: r.metrics.WatchEnds}
	r.rounds = catchup.NewRounds(r.leaderApplied, catchUpPause)
	if err := r.openDisk(); err != nil {
		_ = cfg.PeerListener.Close()
		return nil, err
	}
	if err := r.openNetwork(); err != nil {
		return nil, errors.Join(err, cfg.PeerListener.Close(), r.stores.Close())
	}
	r.pipeline.Go(r.Proposer.Run)
	r.pipeline.Go(r.Complete)
	r.running.Go(r.Deadlines.Run)
	r.running.Go(func() { r.leaders.Run(r.ctx) })
	r.running.Go(func() { r.rounds.Run(r.ctx) })
	r.running.Go(func() { r.sampler.Run(r.ctx) })
	if err := r.start(ctx); err != nil {
		r.abandon()
		return nil, err
	}
	if err := r.failedMeanwhile(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// failedMeanwhile finishes Open and returns the error if the node has failed by then. Later failures are
// reported to Config.Halt.
func (r *Replica) failedMeanwhile(ctx context.Context) error {
	r.mu.Lock()
	cause := r.halted.Load()
	r.opened = true
	r.mu.Unlock()
	if cause == nil {
		return nil
	}
	_ = r.Close(ctx) // cause is the error to report
	return *cause
}

func (r *Replica) openDisk() (err error) {
	if err = r.metrics.Register(r.gauges()...); err != nil {
		return err
	}
	r.stores, err = storage.Open(storage.Options{
		NodeID: r.cfg.ID, DataDir: r.cfg.DataDir, Backend: r.cfg.Stores, SegmentBytes: r.cfg.SegmentBytes,
		NoOverlap: r.cfg.NoOverlap, DiskTimeout: r.cfg.DiskTimeout, Logger: r.log,
		Leads: r.cluster.LeadsOthers, Deletable: r.keepsCommitted, Synced: r.metrics.DiskSynced, Failed: r.diskFailed,
	})
	if err != nil {
		r.metrics.Close()
		return r.advice().Damaged(err)
	}
	r.directory, err = directory.Open(r.directoryConfig())
	r.cluster.Directory = r.directory
	if err == nil {
		err = r.openPeers()
	}
	if err == nil {
		err = r.alarms.Load(r.stores.Values)
	}
	if err == nil {
		err = r.stores.ForgetInterruptedBootstrap()
	}
	if err == nil {
		r.began, err = r.stores.HasState()
	}
	if err != nil {
		r.metrics.Close()
		return errors.Join(r.advice().Damaged(err), r.stores.Close())
	}
	return nil
}

func (r *Replica) openNetwork() error {
	cfg := peerport.Config{
		Listener:  r.cfg.PeerListener,
		Advertise: r.cfg.Advertise.Peer,
		Network:   r.cfg.Network,
		Identity:  peers.Identity{Directory: r.directory, Known: r.peers},
		TLS:       r.cfg.PeerTLS,
		Handler:   r.serveControl,
		Logger:    r.log.Named("peers"),
	}
	cfg.Tunnels, cfg.MaxTunnels = r.tunnelAsked, r.cfg.MaxTunnels
	layer, err := peerport.New(cfg)
	r.mu.Lock()
	r.layer, r.prober = layer, probe.Prober{Layer: layer, Directory: r.directory, Halt: r.halt}
	r.mu.Unlock()
	r.members, r.handover, r.bootstrap = r.newMembers(), r.newHandover(), r.newBootstrap()
	if err == nil {
		if err = r.metrics.AddPeers(layer); err != nil {
			err = errors.Join(err, layer.Close())
		}
	}
	if err != nil {
		r.metrics.Close()
		return err
	}
	layer.Start() // last: from here on, other nodes' requests reach all parts
	return nil
}

// start runs raft if this node has state. If it has none, it first asks the other nodes.
func (r *Replica) start(ctx context.Context) error {
	if r.began {
		return r.startAgain(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*probe.Timeout)
	defer cancel()
	done, err := r.bootstrap.Try(ctx, 0)
	if err != nil || done {
		return err
	}
	r.running.Go(r.awaitBootstrap)
	return nil
}

// awaitBootstrap waits until raft runs on this node.
func (r *Replica) awaitBootstrap() {
	if err := r.bootstrap.Await(r.ctx); err != nil {
		r.halt(err)
	}
}

func (r *Replica) newBootstrap() *bootstrap.Bootstrap {
	r.waiting = ratelog.NewRepeated(r.log)
	cfg := bootstrap.Config{
		Configured: r.cfg.Cluster, Expected: r.cfg.BootstrapExpect, Directory: r.directory, Advice: r.advice(), Self: r.self, Probe: r.findNodes,
		Report: r.reportTo, Start: r.startRaft, Logger: r.log, Waiting: r.waiting,
	}
	if len(r.cfg.Join) > 0 {
		cfg.Join = r.askToJoin
	}
	return bootstrap.New(cfg)
}

// findNodes probes the nodes that this one may form a cluster with, or join.
func (r *Replica) findNodes(ctx context.Context) []probe.Answer {
	ctx, cancel := context.WithTimeout(ctx, 2*probe.Timeout)
	defer cancel()
	addrs, err := seeds.Resolve(ctx, r.cfg.Resolver, r.cfg.Join)
	if err != nil {
		r.waiting.Warn("cannot look up the nodes to join", "error", err)
	}
	return r.prober.Find(ctx, r.directory.Peers(r.cfg.Cluster), addrs)
}

// startAgain runs raft on this node's state, unless it learns from another node that this disk was rolled
// back or the log has forked.
func (r *Replica) startAgain(ctx context.Context) error {
	r.askAround(ctx)
	if cause := r.halted.Load(); cause != nil {
		return *cause
	}
	return r.startRaft(nil)
}

func (r *Replica) raftConfig(log hclog.Logger) *raft.Config {
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
	c.ShutdownOnRemove = false // a removed node says so instead of vanishing
	c.NoLegacyTelemetry = true
	c.Logger = log
	return c
}

// startRaft runs raft. If seen is not nil, it first begins a new cluster with these members.
func (r *Replica) startRaft(seen []*wire.Member) (err error) {
	log := raftlog.New(raftlog.Config{NodeID: r.cfg.ID, Logger: r.log, Node: r.cluster.At})
	conf := r.raftConfig(log)
	if err := raft.ValidateConfig(conf); err != nil {
		return fmt.Errorf("raft's settings: %w", err)
	}
	trans := peerport.NewTransport(r.layer, peerport.TransportConfig{
		Resolve:  r.cluster.Resolve,
		Awaited:  r.awaited,
		Follows:  r.cluster.Follows,
		Written:  r.stores.IsWritten,
		Observer: r.peers,
		Timeout:  max(2*time.Second, 2*r.cfg.ElectionTimeout),
		Logger:   log,
	})
	if seen != nil {
		if err := r.begin(conf, trans, seen); err != nil {
			return errors.Join(err, trans.Close())
		}
	}
	replayed, err := r.stores.Log.LastIndex()
	if err != nil {
		return errors.Join(err, trans.Close())
	}
	r.checker.Skip(replayed)
	node, err := r.newRaft(conf, trans)
	if err != nil {
		return errors.Join(err, trans.Close())
	}
	r.stores.RaftRuns()
	r.trans = trans
	r.cluster.Run(node)
	log.Attach(node)
	r.running.Go(r.lead)
	r.running.Go(func() { r.catchUp.Follow(r.ctx, node, r.stores.Log) })
	r.running.Go(r.keep)
	r.running.Go(r.report)
	r.running.Go(func() { r.checker.Run(r.ctx) })
	r.running.Go(func() { r.checker.RunExchange(r.ctx) })
	r.running.Go(func() { r.peers.Run(r.ctx) })
	r.running.Go(func() { r.alarms.Run(r.ctx) })
	if !r.cfg.NoFailoverHint {
		m := r.newMonitor(node)
		r.monitor.Store(m)
		r.running.Go(func() { m.Run(r.ctx) })
		r.running.Go(func() { r.handover.Run(r.ctx) })
	}
	if err := r.checkInForce(); err != nil { // as far as a snapshot has it; a leader checks again before it serves
		r.halt(err)
	}
	return nil
}

// begin writes the initial state of a cluster to the disk. The members that were seen come first: from then
// on, a member that loses its data directory is recognized.
func (r *Replica) begin(conf *raft.Config, trans raft.Transport, seen []*wire.Member) error {
	r.log.Info("bootstrapping a new cluster", "nodes", len(r.bootstrap.InitialVoters().Servers), "seen", len(seen))
	if _, err := r.directory.Store(0, &wire.Membership{Members: r.bootstrap.InitialMembers(seen)}); err != nil {
		return fmt.Errorf("bootstrap the cluster: %w", err)
	}
	if err := raft.BootstrapCluster(conf, r.stores.Log, r.stores.Votes, r.stores.Snapshots, trans, r.bootstrap.InitialVoters()); err != nil {
		return fmt.Errorf("bootstrap the cluster: %w", err)
	}
	return nil
}

// newRaft starts raft. It also returns an error where raft only logs, or panics, because the state is
// unreadable.
func (r *Replica) newRaft(conf *raft.Config, trans raft.Transport) (node *raft.Raft, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("open raft: %v", reason)
		}
		if cause := r.halted.Load(); err != nil && cause != nil {
			err = *cause
		}
	}()
	return raft.NewRaft(conf, recorder{r.machine, r.eventLog, r.checker.Mark, r.catchUp, r.peers.Applied, r.Proposer.Awaited, r.cfg.Audit, r.sampler.Applied}, r.stores.Log, r.stores.Votes, r.stores.Snapshots, trans)
}

// awaited reports whether this node leads and the other one is a member.
func (r *Replica) awaited(id raft.ServerID) bool {
	return r.current() != nil && r.cluster.Contains(string(id))
}

// abandon cleans up after a failed Open.
func (r *Replica) abandon() {
	r.cancel()
	r.eventLog.Close()
	r.Deadlines.Close()
	r.Proposer.Stop()
	r.running.Wait()
	r.pipeline.Wait()
	_ = r.layer.Close()
	_ = r.stores.Close()
	r.metrics.Close()
}

// Close hands leadership over, for as long as ctx allows, then stops the node and waits for all its
// goroutines. Only the first call has an effect.
func (r *Replica) Close(ctx context.Context) error {
	r.mu.Lock()
	if r.closing {
		r.mu.Unlock()
		return nil
	}
	r.closing = true
	r.mu.Unlock()
	r.cancel()
	r.eventLog.Close()
	r.endLeadership("this node is stopping")
	r.admins.Wait()
	r.handOver(ctx)
	r.Deadlines.Close()
	r.running.Wait()
	// At shutdown, raft drops the futures of entries that are on their way to the state machine, so the
	// pipeline must be empty first.
	r.Proposer.Stop()
	r.pipeline.Wait()
	var err error
	if node := r.cluster.Raft(); node != nil {
		err = node.Shutdown().Error()
	}
	r.snapshots.Wait()
	r.metrics.Close()
	return errors.Join(err, r.layer.Close(), r.stores.Close())
}

// halt stops serving for good and reports err to Config.Halt, once. During Open, Open returns it instead.
// halt may be called on raft's own goroutines.
func (r *Replica) halt(err error) {
	r.mu.Lock()
	if r.layer != nil { // nil while the disk is being opened
		r.layer.StopSending()
	}
	first, opened := r.halted.CompareAndSwap(nil, &err), r.opened
	if first && opened && !r.closing {
		// When one of raft's goroutines hangs, others may keep sending heartbeats, and the process may be
		// unable to exit. Closing the layer makes sure that the other nodes do not take this node for a live
		// leader.
		r.running.Go(func() { _ = r.layer.Close() })
	}
	r.mu.Unlock()
	if !first {
		return
	}
	r.endLeadership("this node has failed")
	r.eventLog.Close()
	if opened {
		r.cfg.Halt(err)
	}
	// Log last: the log file may be on the disk that hangs.
	r.log.Error("this node must stop", "error", err)
}

func (r *Replica) diskFailed(err error) { r.halt(r.advice().Damaged(err)) }

// newProcessor creates the processor of commands. It hands its entries to applyEntry.
func (r *Replica) newProcessor() *command.Processor {
	apply := r.apply
	r.applyEntry.Store(&apply)
	return command.New(command.Config{
		Machine: r.machine, Metrics: r.metrics, Logger: r.log, Refusal: r.refusal, Halt: r.halt,
		Apply: func(data []byte, timeout time.Duration) raft.ApplyFuture {
			return (*r.applyEntry.Load())(data, timeout)
		},
	})
}

func (r *Replica) apply(data []byte, timeout time.Duration) raft.ApplyFuture {
	if r.halted.Load() != nil {
		return groupcommit.Failed{Err: raft.ErrNotLeader}
	}
	return r.cluster.Raft().Apply(data, timeout)
}

// View calls f with the state machine under a read lock. f must be short and must not change anything.
func (r *Replica) View(f func(*fsm.Machine)) { r.machine.View(f) }

// Fork returns a copy of the state machine for long reads, in O(1).
func (r *Replica) Fork() *fsm.Machine { return r.machine.Fork() }
