package server

import (
	"context"
	"net"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/internal/examine"
	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// reservedFiles is the number of descriptors for the log, the snapshots and connections to other nodes.
const reservedFiles = 256

// OpenFiles returns how many files the node may need to have open, with all its connections.
func (c Config) OpenFiles() int {
	l := c.withDefaults().Limits
	return l.MaxConnections + l.MaxTunnels + l.MaxHandshakes + c.HTTPLimits.MaxConnections + c.HTTPLimits.MaxHandshakes + reservedFiles
}

// examined is the replica as the client ports see it: its status includes what the node has found out about itself.
type examined struct {
	*replica.Replica
	examiner *examine.Examiner
}

// Status adds the examination, if it is asked for.
func (e examined) Status(ctx context.Context, req *wire.StatusRequest) (*wire.StatusResponse, error) {
	status, err := e.Replica.Status(ctx, req)
	if err == nil && req.GetExamine() {
		status.Examination = e.examiner.Examine(ctx)
	}
	return status, err
}

// startExaminer begins to watch the clock and the leaders.
func (n *Node) startExaminer() error {
	cfg := examine.Config{
		DataDir: n.cfg.DataDir,
		Configured: &wire.Examination{
			OpenFilesNeeded:    uint64(n.cfg.OpenFiles()),
			MemoryLimitBytes:   uint64(n.cfg.MemoryLimit),
			BufferLimitBytes:   uint64(n.cfg.MaxBufferBytes),
			HeartbeatTimeoutMs: uint32(n.cfg.HeartbeatTimeout.Milliseconds()),
			ElectionTimeoutMs:  uint32(n.cfg.ElectionTimeout.Milliseconds()),
		},
	}
	if n.certs.client != nil {
		cfg.Uncertified = n.uncertified
	}
	if n.cfg.hasStores() {
		cfg.DataDir = ""
	}
	unregister, err := n.showFreeBytes(cfg.DataDir)
	if err != nil {
		return err
	}
	n.examiner = examine.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { n.examiner.Run(ctx) })
	unsubscribe := n.replica.OnLeader(n.leaderChanged)
	n.stopExaminer = func() {
		unsubscribe()
		cancel()
		running.Wait()
		unregister()
	}
	return nil
}

// showFreeBytes exports the free space of the data directory, where the system has that.
func (n *Node) showFreeBytes(dir string) (unregister func(), err error) {
	if _, known := examine.FreeBytes(dir); !known {
		return func() {}, nil
	}
	gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quorumlock_data_free_bytes", Help: "Free space of the file system with the data directory, for the user of this node.",
	}, func() float64 {
		free, _ := examine.FreeBytes(dir)
		return float64(free)
	})
	return func() { n.cfg.Registry.Unregister(gauge) }, n.cfg.Registry.Register(gauge)
}

func (n *Node) leaderChanged(hint *wire.LeaderHint) {
	if hint.GetId() == "" {
		n.examiner.LeaderLost(n.replica.LastContact())
	} else {
		n.examiner.LeaderFound()
	}
}

// uncertified returns the advertised addresses whose host the certificate of the client port does not name.
func (n *Node) uncertified() (addrs []string) {
	for _, addr := range []string{n.tell.Client, n.tell.HTTP} {
		if host, _, err := net.SplitHostPort(addr); err == nil && n.certs.client.CheckHost(host) != nil {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}
