package command

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

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
			r := newLeading(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var levels []uint32
			r.Proposer = groupcommit.New(func(data []byte, _ time.Duration) raft.ApplyFuture {
				var entry wire.Entry
				if err := proto.Unmarshal(data, &entry); err != nil {
					t.Error(err)
				}
				levels = append(levels, entry.Level)
				return committed{}
			}, nil)
			r.Proposer.Begin(1)
			var running sync.WaitGroup
			running.Go(r.Proposer.Run)
			running.Go(func() {
				for b := range r.Proposer.Batches() {
					if c.answer != nil {
						b.Items[0].Answer(c.answer)
					}
				}
			})
			if c.cancelled {
				cancel()
			}
			result, err := r.Execute(ctx, c.term, c.cmd, 3)
			if !errors.Is(err, c.want) || c.want == nil && result.GetToken() != 9 {
				t.Errorf("%s: %v, %v", name, result, err)
			}
			synctest.Wait()
			r.Proposer.Stop()
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
	r := newLeading(t)
	r.cfg.Machine = fsm.NewReplicated(fsm.Level, nil) // without settings, nothing else is checked
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
		if _, err := r.Execute(cancelled, 1, cmd, 0); !errors.Is(err, want) {
			t.Errorf("an entry of %d bytes: %v", size, err)
		}
		if size > groupcommit.MaxEntryBytes {
			break
		}
	}
}
