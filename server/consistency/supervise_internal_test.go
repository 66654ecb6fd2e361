package consistency

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestWarnings verifies that failed steps are logged while the leadership lasts.
func TestWarnings(t *testing.T) {
	var out bytes.Buffer
	s := Supervision{Logger: hclog.New(&hclog.LoggerOptions{Output: &out})}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var lines []int
	warn := func(err error) {
		s.warn(ctx, "do it", err)
		lines = append(lines, strings.Count(out.String(), "a step of the leader failed: step=\"do it\""))
	}
	failed := errors.New("failed")
	warn(nil)
	warn(failed)
	cancel()
	warn(failed)
	if !slices.Equal(lines, []int{0, 1, 1}) {
		t.Errorf("logged %v", lines)
	}
}

// TestDisagreementSuspendsGrants verifies that granting is suspended while it is unknown which state is right, and
// resumed when a majority agrees on a later state.
func TestDisagreementSuspendsGrants(t *testing.T) {
	machine, index := fsm.NewReplicated(fsm.Level, func(err error) { t.Error(err) }), uint64(0)
	execute := func(commands ...*wire.Command) error {
		data, err := proto.Marshal(&wire.Entry{Level: 1, Commands: commands})
		if err != nil {
			return err
		}
		index++
		applied, ok := machine.Apply(&raft.Log{Index: index, Data: data}).(*fsm.Applied)
		if !ok || slices.ContainsFunc(applied.Results, func(r *wire.Result) bool { return r.GetStatus() != wire.Status_OK }) {
			return errors.New("not applied")
		}
		return nil
	}
	if err := execute(&wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c", Settings: fsm.DefaultSettings()}}},
		&wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: 1, LeaderId: "n1"}}}); err != nil {
		t.Fatal(err)
	}
	s := Supervision{Machine: machine, Logger: hclog.NewNullLogger(), Execute: func(cmd *wire.Command) error { return execute(cmd) }}
	suspended := func() (revision uint64) {
		machine.View(func(m *fsm.Machine) { revision = m.GrantsSuspended() })
		return revision
	}
	reconcile := func(doubt bool, agreed, since uint64) bool {
		s.reconcileGrants(t.Context(), since, agreed, doubt)
		return suspended() != 0
	}
	if reconcile(false, 0, 0) {
		t.Error("suspended without a doubt")
	}
	if !reconcile(true, 0, 0) {
		t.Fatal("not suspended")
	}
	since, before := suspended(), index
	reconcile(true, 0, since)
	if index != before || suspended() != since {
		t.Error("suspended again")
	}
	for _, c := range []struct {
		doubt  bool
		agreed uint64
		want   bool
	}{{true, since + 9, true}, {false, since - 1, true}, {false, since, false}} {
		if reconcile(c.doubt, c.agreed, since) != c.want {
			t.Errorf("in doubt %v, agreed at %d, suspended at %d: suspended %v", c.doubt, c.agreed, since, !c.want)
		}
	}
}
