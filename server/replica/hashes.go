package replica

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/consistency"
	"github.com/quorumlock/quorumlock/server/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func (r *Replica) newChecker() *consistency.Checker {
	return consistency.New(consistency.Config{
		Self:      r.cfg.ID,
		Voters:    r.cluster.Voters,
		Exchange:  r.exchangeHashes,
		Dissented: r.diverged,
		Hashed:    func(took time.Duration) { r.metrics.Hashing.Observe(took.Seconds()) },
		Logger:    r.log,
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
func (r *Replica) diverged(d *consistency.Dissent) {
	message := fmt.Sprintf("after log entry %d it hashes to %.8x, and on %s, %d of %d voters, to %.8x. "+
		"Please report this, and keep the data directory for it. To replace this node, %s",
		d.Index, d.Own, strings.Join(d.Majority, " and "), len(d.Majority), d.Voters, d.Theirs, r.advice().Replace("diverged"))
	r.stopForGood(status.ErrDiverged, message)
}

// superviseInterval is how often a leader checks whether a hash point is due, and whether grants are to be suspended
// or resumed.
const superviseInterval = 500 * time.Millisecond

// superviseState requests hash points, and suspends and resumes grants, until the leadership ends.
func (r *Replica) superviseState(lead *leadership) {
	tick := time.NewTicker(superviseInterval)
	defer tick.Stop()
	for {
		var revision, suspended uint64
		r.machine.View(func(m *fsm.Machine) { revision, suspended = m.Revision(), m.GrantsSuspended() })
		r.markState(lead, len(r.cluster.Servers()), revision, suspended)
		agreed, undecided := r.checker.Verdict()
		r.reconcileGrants(lead, suspended, agreed, undecided)
		select {
		case <-tick.C:
		case <-lead.ctx.Done():
			return
		}
	}
}

// markState requests a hash point if one is due, and there are other nodes or granting is suspended.
func (r *Replica) markState(lead *leadership, nodes int, revision, suspended uint64) {
	if (nodes > 1 || suspended != 0) && r.checker.Due(r.cfg.HashInterval, revision, r.machine.Units(), suspended != 0) {
		r.Proposer.Mark(lead.term)
	}
}

// reconcileGrants suspends granting while it is undecided which state is right, and resumes it once a majority
// has agreed on a later one. suspended is the revision since which it is suspended, 0 if it is not.
func (r *Replica) reconcileGrants(lead *leadership, suspended, agreed uint64, undecided bool) {
	switch {
	case undecided && suspended == 0:
		suspend := &wire.Command{Op: &wire.Command_SuspendGrants{SuspendGrants: &wire.SuspendGrants{}}}
		err := r.do(lead.ctx, lead, suspend, 0)
		r.warnFailed(lead, "suspend granting", err)
		if err == nil {
			r.log.Error("GRANTS ARE SUSPENDED: the states of the nodes differ and no majority agrees; start the other voters, or replace the wrong node")
		}
	case !undecided && suspended != 0 && agreed >= suspended:
		resume := &wire.Command{Op: &wire.Command_ResumeGrants{ResumeGrants: &wire.ResumeGrants{Revision: suspended}}}
		err := r.do(lead.ctx, lead, resume, 0)
		r.warnFailed(lead, "resume granting", err)
		if err == nil {
			r.log.Warn("grants resumed: a majority of the voters agrees on a later state")
		}
	}
}

// warnFailed logs a failed step, unless the leadership has ended.
func (r *Replica) warnFailed(lead *leadership, what string, err error) {
	if err != nil && lead.ctx.Err() == nil {
		r.log.Warn("could not "+what, "error", err)
	}
}
