package replica

import (
	"context"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/eventlog"
	"github.com/quorumlock/quorumlock/server/internal/cluster"
	"github.com/quorumlock/quorumlock/server/internal/metrics"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// governing returns a node without raft that leads term 1. Tests take entries from its queue themselves.
func governing(t *testing.T) *Replica {
	t.Helper()
	r := &Replica{log: hclog.NewNullLogger(), eventLog: eventlog.New(), leaders: cluster.NewLeaderChanges()}
	r.cfg.ID = "n1"
	r.checker = r.newChecker()
	r.ctx, r.cancel = context.WithCancel(t.Context())
	r.machine = fsm.NewReplicated(fsm.Level, func(err error) { t.Error(err) })
	r.metrics, r.alarms = metrics.New(nil), r.newAlarms()
	r.Processor = r.newProcessor()
	r.applyNow(t, &wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c", Settings: fsm.DefaultSettings()}}},
		&wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: 1, LeaderId: "n1"}}})
	r.Proposer.Begin(1)
	r.machine.View(func(m *fsm.Machine) { r.Deadlines.Start(1, m) })
	r.Notifier.Open()
	r.Proposer.Serve(1, 1)
	return r
}

// applyNow makes the state machine apply one entry with these commands.
func (r *Replica) applyNow(t *testing.T, commands ...*wire.Command) *fsm.Applied {
	t.Helper()
	data, err := proto.Marshal(&wire.Entry{Level: 1, Commands: commands})
	if err != nil {
		t.Fatal(err)
	}
	switch applied := r.machine.Apply(&raft.Log{Index: r.machine.AppliedIndex() + 1, Data: data}).(type) {
	case *fsm.Applied:
		return applied
	default:
		t.Fatal(applied)
		return nil
	}
}

// opening returns a command that opens a session with a TTL of one minute.
func opening(name string) *wire.Command {
	hash := make([]byte, 32)
	copy(hash, name)
	return &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: hash, TtlMs: 60_000}}}
}
