package replica

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// epoch is where token floors count seconds from: 2024-01-01.
	epoch = 1704067200
	// apart is the distance between the token counters of two clusters that one backup
	// was restored into a second after each other, if the counter is not the clock's:
	// no cluster grants a million tokens per second.
	apart = 1 << 20
	// largestToken is the largest there can be, a 63-bit integer.
	largestToken = 1<<63 - 1
	// chunk is what SaveSnapshot writes at once, at most.
	chunk = 64 << 10
)

// SaveSnapshot writes a backup: the whole state, in the format of package fsm, as it is
// at a moment after the call. The cluster goes on meanwhile. Every write has at most
// 64 KiB and is w's only during the call. Leader only, since only it can prove that
// nothing granted before the call is missing.
func (r *Replica) SaveSnapshot(ctx context.Context, w io.Writer) error {
	if err := r.proved(ctx); err != nil {
		return err
	}
	return r.machine.Fork().WriteSnapshot(&chunks{ctx: ctx, w: w})
}

// chunks cuts what is written into pieces, and ends it with ctx.
type chunks struct {
	ctx context.Context
	w   io.Writer
}

func (c *chunks) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		if err := c.ctx.Err(); err != nil {
			return written, err
		}
		n, err := c.w.Write(p[:min(len(p), chunk)])
		written += n
		if err != nil {
			return written, err
		}
		p = p[n:]
	}
	return written, nil
}

// Restore begins a new history in this cluster, which must have neither sessions nor
// locks, from what outlives a backup. Tokens go on above all that any cluster of that
// backup can have granted: see [tokenFloor]. It takes up to a second. Leader only.
func (r *Replica) Restore(ctx context.Context, req *wire.RestoreRequest) (*wire.RestoreResponse, error) {
	re, done, err := r.administer()
	if err != nil {
		return nil, err
	}
	defer done()
	var live uint64
	var busy bool
	r.machine.View(func(m *fsm.Machine) {
		t := m.Totals()
		live, busy = m.Token(), t.Sessions+t.Locks > 0
	})
	if busy {
		return nil, fmt.Errorf("%w: a backup is restored only into a cluster without sessions and locks", ErrPrecondition)
	}
	now := time.Now()
	floor, err := tokenFloor(req, live, now)
	if err != nil {
		return nil, err
	}
	if err := nextSecond(ctx, now); err != nil {
		return nil, err
	}
	result, err := r.execute(ctx, re, &wire.Command{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{
		TokenFloor: floor,
		Settings:   req.GetSettings(),
		Audit:      newestThatFit(req.GetAudit()),
		Lineage:    mint(),
		Operator:   req.GetOperator(),
		Reason:     req.GetReason(),
	}}}, 0)
	if err != nil {
		return nil, err
	}
	r.log.Info("a backup was restored", "token-floor", floor, "operator", req.GetOperator(), "reason", req.GetReason())
	return &wire.RestoreResponse{TokenFloor: floor, Revision: result.Revision}, nil
}

// newestThatFit puts the records into order, oldest first, and leaves the oldest out if
// all together are too long for a command.
func newestThatFit(records []*wire.AuditRecord) []*wire.AuditRecord {
	records = slices.SortedFunc(slices.Values(records), func(a, b *wire.AuditRecord) int { return cmp.Compare(a.GetId(), b.GetId()) })
	size := 0
	for i := len(records) - 1; i >= 0; i-- {
		if size += proto.Size(records[i]) + 8; size > maxEntryBytes/2 {
			return records[i+1:]
		}
	}
	return records
}

// clockFloor is the floor that the wall clock gives, which only ever raises it.
func clockFloor(now time.Time) uint64 { return uint64(max(0, now.Unix()-epoch)) << 32 }

// tokenFloor is above every token that a cluster with the backup's tokens can have granted
// meanwhile, and this one. The clock sees to that, as it does at bootstrap. But a counter
// that is ahead of the clock (an operator may have raised it) stays ahead of it: so each
// second also puts the floor a little further away from the backup. Otherwise clusters
// that one backup is restored into, one after the other, would grant the same tokens.
func tokenFloor(req *wire.RestoreRequest, live uint64, now time.Time) (uint64, error) {
	above := 1<<32 + uint64(max(0, now.Unix()))*apart
	if req.GetToken() > largestToken-above {
		return 0, fmt.Errorf("%w: the backup's token %d leaves no room above it", ErrInvalid, req.GetToken())
	}
	return max(req.GetToken()+above, clockFloor(now), req.GetTokenFloor(), live), nil
}

// nextSecond waits until the second of the given time is over: whoever restores the same
// backup after this restore does so in a later one.
func nextSecond(ctx context.Context, of time.Time) error {
	for next := of.Truncate(time.Second).Add(time.Second); time.Now().Unix() <= of.Unix(); {
		select {
		case <-time.After(max(time.Until(next), time.Millisecond)):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		}
	}
	return nil
}

// execute proposes one of the reign's own commands and waits for its result, which is
// OK if there is no error.
func (r *Replica) execute(ctx context.Context, re *reign, cmd *wire.Command, level uint32) (*wire.Result, error) {
	if faults := r.invalid([]Proposal{{Command: cmd, Size: proto.Size(cmd)}}); faults != nil {
		return faults[0], asError(faults[0])
	}
	done := make(chan *wire.Result, 1)
	it := newItem(cmd, func(result *wire.Result) { done <- result })
	it.level = level
	if it.size > maxEntryBytes {
		return nil, fmt.Errorf("%w: the request is larger than a log entry may be (256 KiB)", ErrInvalid)
	}
	if !r.proposer.urge(re.term, it) {
		return nil, ErrNotLeader
	}
	select {
	case result := <-done:
		return result, asError(result)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUncertain, ctx.Err())
	}
}
