package replica

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/command"
	"github.com/quorumlock/quorumlock/server/internal/metrics"
	"github.com/quorumlock/quorumlock/server/membership/autopilot"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// started returns a replica without raft that leads in term 1 and whose state machine has a cluster. No
// proposer runs, so proposed commands stay in the queue.
func started(t *testing.T) *Replica {
	t.Helper()
	r := &Replica{cfg: Config{ID: "n1"}, log: hclog.NewNullLogger(), leadership: &leadership{term: 1, serving: true}}
	r.leadership.r, r.alarms, r.pilot = r, r.newAlarms(), autopilot.New(autopilot.Config{})
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
	r.Processor = command.New(command.Config{
		Machine: r.machine, Metrics: metrics.New(nil), Logger: r.log, Halt: func(err error) { t.Error(err) },
		Refusal: func() *wire.Result { return status.Result(wire.Status_NOT_LEADER, "") },
	})
	r.Proposer.Begin(1)
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
			r := started(t)
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
			if file.Len() != 0 || acknowledged != nil || restored != nil || r.Proposer.Queued() != 0 {
				t.Errorf("%s: wrote %d bytes, %v, %v", name, file.Len(), acknowledged, restored)
			}
			r.admins.Wait()
		})
	}
}

// TestRestoreThatIsCancelled cancels a restore in the second that it waits before it is proposed.
func TestRestoreThatIsCancelled(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := started(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.Restore(ctx, &wire.RestoreRequest{Reason: "test", Settings: fsm.DefaultSettings(), Backup: &wire.Backup{ClusterId: "c", Revision: 1, Token: 1}}); !errors.Is(err, status.ErrUnavailable) {
			t.Errorf("restored: %v", err)
		}
		if r.Proposer.Queued() != 0 {
			t.Error("something was proposed")
		}
	})
}
