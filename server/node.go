package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/eventlog"
	"github.com/quorumlock/quorumlock/server/httpapi"
	"github.com/quorumlock/quorumlock/server/internal/auditlog"
	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/server/internal/examine"
	"github.com/quorumlock/quorumlock/server/internal/fairqueue"
	"github.com/quorumlock/quorumlock/server/internal/health"
	"github.com/quorumlock/quorumlock/server/internal/keys"
	"github.com/quorumlock/quorumlock/server/internal/lease"
	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/server/redis"
	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/server/rpc"
)

// Node is a running node. All methods are safe for concurrent use.
type Node struct {
	cfg    Config
	log    hclog.Logger
	bound  Addresses
	tell   Addresses
	halted chan error
	// certified is the cluster that the node's peer certificate names, empty without one.
	certified string

	certs    *nodeCertificates
	audit    *auditlog.Log
	replica  *replica.Replica
	leases   *lease.Service
	rpc      *rpc.Server
	httpapi  *httpapi.Server
	httpDone chan struct{} // closed when httpapi has stopped serving; nil if it is off
	keys     *keys.Service
	redis    *redis.Server // nil if it is off
	redisAt  string        // the address it listens on

	queues       *fairqueue.Queues
	buffers      *budget.Budget
	quotas       *quota.Node
	monitor      func() // stops the monitor of the quotas
	examiner     *examine.Examiner
	stopExaminer func()
	health       *health.Server // nil if it is off
	healthAt     string         // the address it listens on
	stopping     atomic.Bool

	closing sync.Once
	closed  chan struct{}
	err     error // the result of Close; set before closed is closed
}

// Open starts a node and returns once its ports are serving. It waits neither for a leader nor for the other
// nodes. ctx bounds the start only. Open returns ErrConfig, ErrListen, or an error of replica.Open; after an
// error nothing is left running or bound.
func Open(ctx context.Context, cfg Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if cfg.Registry == nil {
		cfg.Registry = newRegistry()
	}
	n := &Node{cfg: cfg, log: cfg.Logger, halted: make(chan error, 1), closed: make(chan struct{})}
	for _, warning := range cfg.Warnings() {
		n.log.Warn("this configuration has a risk", "detail", warning)
	}
	ports, err := n.listen(ctx)
	if err != nil {
		return nil, err
	}
	if err := n.start(ctx, ports); err != nil {
		ports.close()
		return nil, errors.Join(err, n.stop(ctx))
	}
	return n, nil
}

// newRegistry returns a registry that includes the metrics of the Go runtime and the process. It is the
// default for a process that runs only this node.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// droppedLines is the metric of the lines that the log lacks.
func droppedLines(count func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "quorumlock_log_dropped_lines_total",
		Help: "Lines that the log of this node lacks because nobody read it, or because it could not be written.",
	}, func() float64 {
		if count == nil {
			return 0
		}
		return float64(count())
	})
}

// start starts the parts in dependency order.
func (n *Node) start(ctx context.Context, ports *listeners) (err error) {
	if n.certified, err = n.cfg.checkCertificates(time.Now()); err != nil {
		return err
	}
	if n.certs, err = openCertificates(n.cfg); err != nil {
		return err
	}
	if err := n.cfg.checkAuditLog(); err != nil {
		return err
	}
	if n.audit, err = auditlog.Open(auditlog.Config{
		Path: n.cfg.AuditLog, NodeID: n.cfg.ID, ClusterID: n.clusterID, Logger: n.log.Named("audit"), Registry: n.cfg.Registry,
	}); err != nil {
		return err
	}
	if err := n.startReplica(ctx, ports.peer); err != nil {
		return err
	}
	if err := n.cfg.Registry.Register(droppedLines(n.cfg.LogDropped)); err != nil {
		return err
	}
	n.queues, n.buffers = fairqueue.NewQueues(), budget.New(n.cfg.MaxBufferBytes)
	if err := n.buffers.Register(n.cfg.Registry); err != nil {
		return err
	}
	if err := n.startQuotas(); err != nil {
		return err
	}
	if err := n.startExaminer(); err != nil {
		return err
	}
	n.leases = lease.NewService(n.replica, lease.Grace, n.log.Named("leases"))
	if err := n.startRPC(ports.client); err != nil {
		return err
	}
	n.keys = keys.New(keys.Config{
		NodeID: n.cfg.ID, Replica: n.replica, Leases: n.leases, Buffers: n.buffers, Logger: n.log.Named("keys"), Registry: n.cfg.Registry,
	})
	if ports.redis != nil {
		if err := n.startRedis(ports.redis); err != nil {
			return err
		}
	}
	if ports.health != nil {
		probe := &health.Probe{NodeID: n.cfg.ID, Replica: n.replica, Closing: n.stopping.Load}
		n.health = health.Serve(ports.health, probe, n.portFailed)
	}
	if ports.http == nil {
		return nil
	}
	return n.startHTTP(ports.http)
}

// startQuotas begins to count what identities use, and to warn of quotas that are nearly used up.
func (n *Node) startQuotas() error {
	n.quotas = quota.New(n.replica, eventlog.MaxWatches)
	n.quotas.ID = n.cfg.ID
	monitor, err := quota.NewMonitor(n.quotas, n.replica, n.log.Named("quota"), n.cfg.Registry)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { monitor.Run(ctx) })
	n.monitor = func() {
		cancel()
		running.Wait()
	}
	return nil
}

func (n *Node) startReplica(ctx context.Context, l net.Listener) error {
	cfg := replica.Config{
		ID:                 n.cfg.ID,
		DataDir:            n.cfg.DataDir,
		SegmentBytes:       n.cfg.LogSegmentBytes,
		Advertise:          replica.Addresses(n.tell),
		Cluster:            n.initialCluster(),
		Join:               n.cfg.Join,
		BootstrapExpect:    n.cfg.BootstrapExpect,
		ClusterID:          n.certified,
		Level:              n.cfg.FeatureLevel,
		Version:            n.cfg.Version,
		Commit:             n.cfg.Commit,
		HeartbeatTimeout:   n.cfg.HeartbeatTimeout,
		ElectionTimeout:    n.cfg.ElectionTimeout,
		LeaderLeaseTimeout: n.cfg.LeaderLeaseTimeout,
		CommitTimeout:      n.cfg.CommitTimeout,
		HashInterval:       n.cfg.HashInterval,
		Autopilot:          n.cfg.Autopilot,
		DiskTimeout:        n.cfg.DiskTimeout,
		NoFailoverHint:     n.cfg.NoFailoverHint,
		NoTunnels:          n.cfg.NoTunnels,
		MaxTunnels:         n.cfg.Limits.MaxConnections,
		NoOverlap:          n.cfg.NoOverlap,
		Settings:           n.cfg.Settings,
		TokenFloor:         n.cfg.TokenFloor,
		Network:            n.cfg.Network,
		PeerListener:       l,
		Stores:             n.cfg.Stores,
		Logger:             n.log,
		Registry:           n.cfg.Registry,
		Halt:               n.halt,
		Audit:              n.audit.Append,
		AuditLocally:       n.audit.AppendLocal,
		SnapshotThreshold:  n.cfg.SnapshotThreshold,
		TrailingLogs:       n.cfg.TrailingLogs,
		SnapshotInterval:   n.cfg.SnapshotInterval,
		ClientCertificates: n.cfg.TLS.CA != "",
		CertificateExpiry:  n.certs.expires,
	}
	backups, faults := n.cfg.openBackups()
	if len(faults) > 0 {
		return fmt.Errorf("%w: %w", ErrConfig, errors.Join(faults...))
	}
	cfg.Backups = backups
	if n.cfg.PeerTLS.Cert != "" {
		cfg.PeerTLS = &n.cfg.PeerTLS
	}
	var err error
	n.replica, err = replica.Open(ctx, cfg)
	return err
}

// initialCluster returns the configured cluster, or this node alone if none is configured.
func (n *Node) initialCluster() []replica.Peer {
	if len(n.cfg.Join) > 0 {
		return nil
	}
	if len(n.cfg.Cluster) == 0 {
		return []replica.Peer{{ID: n.cfg.ID, Addr: n.tell.Peer}}
	}
	peers := make([]replica.Peer, 0, len(n.cfg.Cluster))
	for _, p := range n.cfg.Cluster {
		peers = append(peers, replica.Peer(p))
	}
	return peers
}

func (n *Node) startRPC(l net.Listener) error {
	tlsConfig, err := n.cfg.rpcTLS(n.certs)
	if err != nil {
		return err
	}
	cfg := rpc.Config{
		Listener:         l,
		Replica:          examined{n.replica, n.examiner},
		NodeID:           n.cfg.ID,
		ClusterID:        n.clusterID,
		ClientAddrs:      n.clientAddrs,
		TLS:              tlsConfig,
		Certificates:     n.certs.client,
		RequireIdentity:  n.cfg.TLS.CA != "",
		CertifiedCluster: n.certified,
		Queues:           n.queues,
		Buffers:          n.buffers,
		Leases:           n.leases,
		Quotas:           n.quotas,
		Limits:           n.cfg.Limits,
		Denials:          n.audit.Deny,
		Logger:           n.log.Named("rpc"),
		Registry:         n.cfg.Registry,
	}
	if !n.cfg.NoTunnels {
		cfg.Tunnels = n.replica
	}
	n.rpc, err = rpc.Serve(cfg)
	return err
}

func (n *Node) clusterID() (id string) {
	n.replica.View(func(m *fsm.Machine) { id = m.ClusterID() })
	return id
}

// clientAddrs returns the client addresses of the members, as far as this node knows them. A removed node lists none: who
// asks it learns that it was removed.
func (n *Node) clientAddrs() (addrs []string) {
	if n.replica.Removed() != "" {
		return nil
	}
	n.replica.View(func(m *fsm.Machine) {
		for _, member := range m.Members() {
			if member.GetClientAddr() != "" {
				addrs = append(addrs, member.GetClientAddr())
			}
		}
	})
	return addrs
}

func (n *Node) startHTTP(l net.Listener) error {
	cfg := httpapi.Config{
		NodeID:           n.cfg.ID,
		Replica:          examined{n.replica, n.examiner},
		ClientAuth:       httpapi.ClientAuth(n.cfg.clientAuth()),
		CertifiedCluster: n.certified,
		TLS:              n.cfg.TLS,
		Denials:          n.audit.Deny,
		NoConsole:        n.cfg.NoConsole,
		Logger:           n.log.Named("httpapi"),
		Registry:         n.cfg.Registry,
		Queues:           n.queues,
		Buffers:          n.buffers,
		Leases:           n.leases,
		Quotas:           n.quotas,
		Limits:           n.cfg.HTTPLimits,
	}
	server, err := httpapi.New(cfg)
	if err != nil {
		return err
	}
	n.httpapi, n.httpDone = server, make(chan struct{})
	go func() {
		defer close(n.httpDone)
		if err := server.Serve(l); err != nil {
			n.portFailed(fmt.Errorf("the http port stopped serving: %w", err))
		}
	}()
	return nil
}

// HangUp closes all client connections and accepts no new ones, so that clients look for another node
// immediately. It returns when ctx ends, even if closing has not finished. Use it for a node that has halted:
// the cause of the halt may block Close forever.
func (n *Node) HangUp(ctx context.Context) {
	var ports sync.WaitGroup
	if n.httpapi != nil {
		ports.Go(func() { _ = n.httpapi.Close(ctx) })
	}
	if n.redis != nil {
		ports.Go(func() { _ = n.redis.Close(ctx) })
	}
	ports.Go(func() { _ = n.rpc.Close(ctx) })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ports.Wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// halt records the first reason why the node must stop immediately. The caller logs it.
func (n *Node) halt(reason error) {
	select {
	case n.halted <- reason:
	default:
	}
}

// portFailed records that a port has failed, for which the node must stop.
func (n *Node) portFailed(err error) {
	n.log.Error("this node must stop", "error", err)
	n.halt(err)
}

// Halted returns a channel that yields, at most once, the reason why the node must stop immediately: its disk
// failed or hangs, an invariant was violated, or it met data it does not understand. By then the node has
// stopped serving; the caller should call HangUp and end the process.
func (n *Node) Halted() <-chan error { return n.halted }

// ReopenAuditLog opens the path of the audit log again, because the file was renamed. The node also notices that by
// itself, within a second.
func (n *Node) ReopenAuditLog() { n.audit.Reopen() }

// Addrs returns the addresses under which others reach the node. HTTP is empty if that port is off.
func (n *Node) Addrs() Addresses { return n.tell }

// Bound returns the addresses that the ports are bound to.
func (n *Node) Bound() Addresses { return n.bound }

// HealthAddr returns the address that the health listener is bound to, or "" if it is off.
func (n *Node) HealthAddr() string { return n.healthAt }

// RedisAddr returns the address that the Redis port is bound to, or "" if it is off.
func (n *Node) RedisAddr() string { return n.redisAt }

// Condition describes in a line whether clients should be sent to this node: "ready", or the reason that /readyz gives. It
// reads the state, as requests do, and does not return if that is impossible, so a watchdog that waits for it notices a
// deadlock.
func (n *Node) Condition(ctx context.Context) string {
	n.replica.View(func(*fsm.Machine) {})
	probe := health.Probe{NodeID: n.cfg.ID, Replica: n.replica, Closing: n.stopping.Load}
	return cmp.Or(probe.Ready(ctx).Reason, "ready")
}

// BufferBytes returns how much memory the buffers for clients take, in bytes.
func (n *Node) BufferBytes() int64 { return n.buffers.Used() }

// Replica returns the node's replica.
func (n *Node) Replica() *replica.Replica { return n.replica }

// Close hands over leadership, so that clients move before their connections end, then stops the parts in
// reverse order and waits for them. If ctx has no deadline, ShutdownTimeout applies. Further calls wait for
// the first and return its result.
func (n *Node) Close(ctx context.Context) error {
	n.closing.Do(func() {
		defer close(n.closed)
		n.err = n.stop(ctx)
	})
	<-n.closed
	return n.err
}

// stop stops the parts that are running, which may be a subset if start failed. If ctx has no deadline,
// ShutdownTimeout applies.
func (n *Node) stop(ctx context.Context) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, n.cfg.ShutdownTimeout)
		defer cancel()
	}
	var errs []error
	n.stopping.Store(true)
	if n.rpc != nil {
		n.handOver(ctx)
	}
	if n.httpapi != nil {
		errs = append(errs, n.httpapi.Close(ctx))
		<-n.httpDone
	}
	if n.redis != nil {
		errs = append(errs, n.redis.Close(ctx))
	}
	if n.keys != nil {
		n.keys.Close()
	}
	if n.rpc != nil {
		errs = append(errs, n.rpc.Close(ctx))
	}
	if n.queues != nil {
		n.queues.Close()
	}
	if n.health != nil {
		n.health.Close()
	}
	if n.monitor != nil {
		n.monitor()
	}
	if n.stopExaminer != nil {
		n.stopExaminer()
	}
	if n.replica != nil {
		errs = append(errs, n.replica.Close(ctx))
	}
	if n.audit != nil {
		errs = append(errs, n.audit.Close(ctx))
	}
	if n.certs != nil {
		n.certs.close()
	}
	return errors.Join(errs...)
}

// handOverShare is the divisor that gives the part of the shutdown time available for handing over
// leadership.
const handOverShare = 3

// handOver transfers leadership while the ports still serve. Clients learn of the next leader on their open
// connections, which is faster than finding it themselves.
func (n *Node) handOver(ctx context.Context) {
	var members int
	n.replica.View(func(m *fsm.Machine) { members = len(m.Members()) })
	if members < 2 || !n.replica.Serving() {
		return
	}
	deadline, _ := ctx.Deadline() // stop has set one
	ctx, cancel := context.WithTimeout(ctx, time.Until(deadline)/handOverShare)
	defer cancel()
	if err := n.replica.StepDown(ctx); err != nil {
		n.log.Warn("leadership was not handed over: the others will elect", "error", err)
		return
	}
	rpc.NextLeader(ctx, n.replica, n.cfg.ID)
}
