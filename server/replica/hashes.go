package replica

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/server/consistency"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func (r *Replica) newChecker() *consistency.Checker {
	return consistency.New(consistency.Config{
		Self:     r.cfg.ID,
		Voters:   r.cluster.Voters,
		Exchange: r.exchangeHashes,
		Diverged: r.diverged,
		Hashed:   func(took time.Duration) { r.metrics.Hashing.Observe(took.Seconds()) },
		Logger:   r.log,
	})
}

// exchangeHashes exchanges hashes with all other nodes. If one cannot be reached, it may reach this one instead;
// otherwise the next exchange contains these hashes too.
func (r *Replica) exchangeHashes(ctx context.Context, own *wire.StateHashes) {
	var exchanges sync.WaitGroup
	for id, server := range r.cluster.Servers() {
		if id != r.cfg.ID {
			exchanges.Go(func() { r.exchangeHashesWith(ctx, r.cluster.Peer(server), own) })
		}
	}
	exchanges.Wait()
}

func (r *Replica) exchangeHashesWith(ctx context.Context, p Peer, own *wire.StateHashes) {
	ctx, cancel := context.WithTimeout(ctx, probe.Timeout)
	defer cancel()
	req := &wire.PeerRequest{Body: &wire.PeerRequest_Hashes{Hashes: &wire.HashesRequest{Hashes: own}}}
	resp, reply, err := r.layer.Call(ctx, p.Addr, p.ID, req)
	if err != nil {
		r.log.Debug("state hashes were not exchanged", "node", p.ID, "error", err)
		return
	}
	r.checker.Record(p.ID, reply.GetIncarnation(), resp.GetHashes())
}

// serveHashes answers another node's hashes with those of this node.
func (r *Replica) serveHashes(from *wire.PeerHello, theirs *wire.StateHashes) *wire.PeerResponse {
	r.checker.Record(from.GetId(), from.GetIncarnation(), theirs)
	return &wire.PeerResponse{Status: wire.Status_OK, Hashes: r.checker.Hashes()}
}

// diverged stops this node for good.
func (r *Replica) diverged(d *consistency.Divergence) {
	message := fmt.Sprintf("after log entry %d it hashes to %.8x, and on %s, %d of %d voters, to %.8x. "+
		"Please report this, and keep the data directory for it. To replace this node, %s",
		d.Index, d.Own, strings.Join(d.Majority, " and "), len(d.Majority), d.Voters, d.Theirs, r.advice().Replace("diverged"))
	r.stopForGood(status.ErrDiverged, message)
}

// superviseState requests hash points, and suspends and resumes grants, until the leadership ends.
func (r *Replica) superviseState(lead *leadership) {
	consistency.Supervise(lead.ctx, consistency.Supervision{
		Checker: r.checker, Machine: r.machine, Interval: r.cfg.HashInterval, Logger: r.log,
		Nodes:   func() int { return len(r.cluster.Servers()) },
		Mark:    func() { r.Proposer.Mark(lead.term) },
		Execute: func(cmd *wire.Command) error { return r.do(lead.ctx, lead, cmd, 0) },
	})
}
