package replica

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// begun returns a replica without raft that leads in term 1 and whose state machine has a cluster. No
// proposer runs, so proposed commands stay in the queue.
func begun(t *testing.T) *Replica {
	t.Helper()
	r := &Replica{cfg: Config{ID: "n1"}, log: hclog.NewNullLogger(), leadership: &leadership{term: 1, serving: true}}
	r.leadership.r = r
	r.machine = fsm.NewReplicated(fsm.Level, func(err error) { t.Error(err) })
	data, err := proto.Marshal(&wire.Entry{Level: 1, Commands: []*wire.Command{
		{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c", Settings: fsm.DefaultSettings()}}},
		{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: 1, LeaderId: "n1"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if applied, ok := r.machine.Apply(&raft.Log{Index: 1, Data: data}).(*fsm.Applied); !ok || applied.Results[0].GetStatus() != wire.Status_OK {
		t.Fatal(applied, ok)
	}
	r.proposer = groupcommit.New(nil, func() *wire.Result { return status.Result(wire.Status_NOT_LEADER, "") })
	r.proposer.Begin(1)
	return r
}

// metered records the sizes of writes, and fails once it has reached a number of them.
type metered struct {
	sizes  []int
	after  int // 0 means never
	passed func()
}

func (c *metered) Write(p []byte) (int, error) {
	if c.sizes = append(c.sizes, len(p)); len(c.sizes) == c.after {
		return 1, errDisk
	}
	if c.passed != nil {
		c.passed()
	}
	return len(p), nil
}

// TestChunks verifies how a write is split, up to a failure or the end of the context.
func TestChunks(t *testing.T) {
	for name, c := range map[string]struct {
		size    int
		after   int
		cancel  bool // after the first piece
		pieces  int
		written int
		want    error
	}{
		"nothing":           {},
		"one piece":         {size: chunk, pieces: 1, written: chunk},
		"a byte more":       {size: chunk + 1, pieces: 2, written: chunk + 1},
		"several":           {size: 3*chunk - 1, pieces: 3, written: 3*chunk - 1},
		"the second fails":  {size: 3 * chunk, after: 2, pieces: 2, written: chunk + 1, want: errDisk},
		"the context ended": {size: 3 * chunk, cancel: true, pieces: 1, written: chunk, want: context.Canceled},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		to := &metered{after: c.after}
		if c.cancel {
			to.passed = cancel
		}
		written, err := (&chunks{ctx, to}).Write(make([]byte, c.size))
		if written != c.written || !errors.Is(err, c.want) || len(to.sizes) != c.pieces || c.pieces > 0 && to.sizes[0] > chunk {
			t.Errorf("%s: %d bytes in %v, %v", name, written, to.sizes, err)
		}
		cancel()
	}
}

// TestExecute proposes the leadership's own commands, which are refused, answered or never answered.
func TestExecute(t *testing.T) {
	act := func(reason int) *wire.Command {
		return &wire.Command{Op: &wire.Command_RecordAct{RecordAct: &wire.RecordAct{Action: wire.AuditRecord_SAVE_SNAPSHOT, Reason: strings.Repeat("r", reason)}}}
	}
	invalid := &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{}}}
	for name, c := range map[string]struct {
		term      uint64
		cmd       *wire.Command
		cancelled bool
		answer    *wire.Result
		want      error
		proposed  int
	}{
		"answered":                {1, act(1), false, &wire.Result{Status: wire.Status_OK, Token: 9}, nil, 1},
		"refused when it applied": {1, act(1), false, status.Result(wire.Status_FAILED_PRECONDITION, "no"), status.ErrPrecondition, 1},
		"not answered":            {1, act(1), true, nil, status.ErrUncertain, 1},
		"of another leadership":   {2, act(1), false, nil, status.ErrNotLeader, 0},
		"invalid":                 {1, invalid, false, nil, status.ErrInvalid, 0},
	} {
		bubble.Test(t, func(t *testing.T) {
			r := begun(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var levels []uint32
			r.proposer = groupcommit.New(func(data []byte, _ time.Duration) raft.ApplyFuture {
				var entry wire.Entry
				if err := proto.Unmarshal(data, &entry); err != nil {
					t.Error(err)
				}
				levels = append(levels, entry.Level)
				return committed{}
			}, nil)
			r.proposer.Begin(1)
			var running sync.WaitGroup
			running.Go(r.proposer.Run)
			running.Go(func() {
				for b := range r.proposer.Batches() {
					if c.answer != nil {
						b.Items[0].Answer(c.answer)
					}
				}
			})
			if c.cancelled {
				cancel()
			}
			result, err := r.execute(ctx, &leadership{term: c.term}, c.cmd, 3)
			if !errors.Is(err, c.want) || c.want == nil && result.GetToken() != 9 {
				t.Errorf("%s: %v, %v", name, result, err)
			}
			synctest.Wait()
			r.proposer.Stop()
			running.Wait()
			if len(levels) != c.proposed || c.proposed > 0 && levels[0] != 3 {
				t.Errorf("%s: proposed at levels %v", name, levels)
			}
		})
	}
}

// TestExecuteBoundsTheEntry verifies that a command that just fills an entry is proposed, and that one with a
// byte more is not.
func TestExecuteBoundsTheEntry(t *testing.T) {
	r := begun(t)
	r.machine = fsm.NewReplicated(fsm.Level, nil) // without settings, nothing else is checked
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	restore := &wire.RestoreBackup{}
	cmd := &wire.Command{Op: &wire.Command_RestoreBackup{RestoreBackup: restore}}
	for length, want := groupcommit.MaxEntryBytes-100, status.ErrUncertain; ; length++ {
		restore.Reason = strings.Repeat("r", length)
		size := proto.Size(cmd) + 8 // what an entry adds
		if size > groupcommit.MaxEntryBytes {
			want = status.ErrInvalid
		}
		if size < groupcommit.MaxEntryBytes {
			continue
		}
		if _, err := r.execute(cancelled, r.leadership, cmd, 0); !errors.Is(err, want) {
			t.Errorf("an entry of %d bytes: %v", size, err)
		}
		if size > groupcommit.MaxEntryBytes {
			break
		}
	}
}

// TestActsThatAreNotDone verifies that nothing is written or restored without a reason, on a follower, or
// once the leadership has ended.
func TestActsThatAreNotDone(t *testing.T) {
	for name, c := range map[string]struct {
		reason  string
		serving bool
		want    error
	}{
		"without a reason":             {"", true, status.ErrInvalid},
		"at a node that follows":       {"test", false, status.ErrNotLeader},
		"at the end of the leadership": {"test", true, status.ErrNotLeader},
	} {
		bubble.Test(t, func(t *testing.T) {
			r := begun(t)
			r.leadership = &leadership{r: r, term: 2, serving: c.serving} // the proposer is not in that term
			var file bytes.Buffer
			save := r.SaveSnapshot(t.Context(), &wire.SaveSnapshotRequest{Reason: c.reason}, &file)
			acknowledged, acknowledge := r.AcknowledgeAlarms(t.Context(), &wire.AcknowledgeAlarmsRequest{Reason: c.reason})
			restored, restore := r.Restore(t.Context(), &wire.RestoreRequest{Reason: c.reason, Settings: fsm.DefaultSettings(), Backup: &wire.Backup{ClusterId: "c", Revision: 1, Token: 1}})
			for act, err := range map[string]error{"save": save, "acknowledge": acknowledge, "restore": restore} {
				if !errors.Is(err, c.want) {
					t.Errorf("%s %s: %v, want %v", act, name, err, c.want)
				}
			}
			if file.Len() != 0 || acknowledged != nil || restored != nil || r.proposer.Queued() != 0 {
				t.Errorf("%s: wrote %d bytes, %v, %v", name, file.Len(), acknowledged, restored)
			}
			r.admins.Wait()
		})
	}
}

// TestRestoreThatIsCancelled cancels a restore in the second that it waits before it is proposed.
func TestRestoreThatIsCancelled(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := begun(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.Restore(ctx, &wire.RestoreRequest{Reason: "test", Settings: fsm.DefaultSettings(), Backup: &wire.Backup{ClusterId: "c", Revision: 1, Token: 1}}); !errors.Is(err, status.ErrUnavailable) {
			t.Errorf("restored: %v", err)
		}
		if r.proposer.Queued() != 0 {
			t.Error("something was proposed")
		}
	})
}

// TestNextSecond verifies that nextSecond waits until the second is over, and does not wait if it already is.
func TestNextSecond(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, into := range []time.Duration{0, 300 * time.Millisecond, time.Second - 1} {
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)) + into)
			of := time.Now()
			if err := nextSecond(t.Context(), of); err != nil || time.Now().Unix() != of.Unix()+1 || time.Since(of) > time.Second {
				t.Errorf("%v into a second: waited %v, %v", into, time.Since(of), err)
			}
			again := time.Now()
			if err := nextSecond(t.Context(), of); err != nil || time.Since(again) != 0 {
				t.Errorf("once it is over: waited %v, %v", time.Since(again), err)
			}
		}
	})
}
