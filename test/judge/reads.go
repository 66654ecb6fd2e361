package judge

import (
	"fmt"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/test/model"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// readRevision returns the revision of the state that a read saw; 0 if op is not a read.
func readRevision(op *history.Op) uint64 {
	switch body := op.Response.GetBody().(type) {
	case *wire.Response_GetLock:
		return body.GetLock.GetRevision()
	case *wire.Response_ListLocks:
		return body.ListLocks.GetRevision()
	case *wire.Response_VerifyToken:
		return body.VerifyToken.GetRevision()
	case *wire.Response_ListSessions:
		return body.ListSessions.GetRevision()
	}
	return 0
}

// stale reports whether a read allowed a stale answer.
func stale(op *history.Op) bool {
	r := op.Request
	return r.GetGetLock().GetStale() || r.GetListLocks().GetStale() || r.GetVerifyToken().GetStale() || r.GetListSessions().GetStale()
}

func readsOf(h *history.History) map[uint64][]*history.Op {
	reads := map[uint64][]*history.Op{}
	for _, op := range h.Ops() {
		if revision := readRevision(op); revision != 0 {
			reads[revision] = append(reads[revision], op)
		}
	}
	return reads
}

// compareRead compares what a read saw with the model in that state.
func compareRead(d *model.Model, op *history.Op) error {
	switch body := op.Response.Body.(type) {
	case *wire.Response_GetLock:
		l := body.GetLock
		return compareLock(d, &wire.LockInfo{
			Name: l.Name, Holders: l.Holders, Queue: l.Queue, QueueLength: l.QueueLength, Order: l.Order,
			Limit: l.Limit, PermitsUsed: l.PermitsUsed, Delays: l.Delays, HolderCount: l.HolderCount,
		})
	case *wire.Response_ListLocks:
		for _, l := range body.ListLocks.Locks {
			if err := compareLock(d, l); err != nil {
				return err
			}
		}
		if complete := op.Request.GetListLocks().GetPageToken() == "" && op.Request.GetListLocks().GetPrefix() == "" && body.ListLocks.NextPageToken == ""; complete && len(body.ListLocks.Locks) != len(d.Locks) {
			return fmt.Errorf("read %d locks at revision %d, there are %d", len(body.ListLocks.Locks), d.Revision, len(d.Locks))
		}
	case *wire.Response_VerifyToken:
		return compareToken(d, op.Request.GetVerifyToken(), body.VerifyToken.Held)
	}
	return nil
}

// compareLock ignores what depends on the node's clock, and what was cut off by paging.
func compareLock(d *model.Model, got *wire.LockInfo) error {
	if d.Locks[got.Name] == nil {
		return fmt.Errorf("read %v at revision %d, when there was no such lock", got, d.Revision)
	}
	want := d.LockInfo(got.Name)
	want.Queue = want.Queue[:min(len(want.Queue), len(got.Queue))]
	want.Holders = want.Holders[:min(len(want.Holders), len(got.Holders))]
	for i, h := range want.Holders {
		clock := got.Holders[i]
		h.HeldForMs, h.HeartbeatAgeMs, h.RemainingHoldMs = clock.HeldForMs, clock.HeartbeatAgeMs, clock.RemainingHoldMs
		h.RemainingLeaseMs, h.IdleMs = clock.RemainingLeaseMs, clock.IdleMs
	}
	for i, w := range want.Queue {
		w.WaitingMs, w.HeartbeatAgeMs = got.Queue[i].WaitingMs, got.Queue[i].HeartbeatAgeMs
	}
	for i, x := range want.Delays[:min(len(want.Delays), len(got.Delays))] {
		x.RemainingMs = got.Delays[i].RemainingMs
	}
	if !model.Same(got, want) {
		return fmt.Errorf("read %v at revision %d, it was %v", got, d.Revision, want)
	}
	return nil
}

func compareToken(d *model.Model, asked *wire.VerifyTokenRequest, held bool) error {
	want := false
	if d.Locks[asked.Name] != nil {
		for _, h := range d.LockInfo(asked.Name).Holders {
			want = want || asked.Token-h.Token < uint64(max(1, h.Tokens))
		}
	}
	if held != want {
		return fmt.Errorf("token %d of lock %q: read %v at revision %d, it was %v", asked.Token, asked.Name, held, d.Revision, want)
	}
	return nil
}
