package replica

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/eventlog"
	"github.com/quorumlock/quorumlock/server/internal/catchup"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// startWatch starts a watch.
func startWatch(t *testing.T, l *eventlog.Log, req *wire.WatchRequest) *eventlog.Watch {
	t.Helper()
	w, final := l.Watch(req, nil)
	if w == nil {
		t.Fatalf("no watch: %v", final)
	}
	return w
}

// TestWhatIsRecorded applies entries and restores snapshots, valid ones and others.
func TestWhatIsRecorded(t *testing.T) {
	r := governing(t)
	terms, counted := 0, 0
	applied := func(*wire.TermStart) { terms++ }
	awaited := true
	marked := uint64(0)
	mark := func(index uint64, _ *fsm.Machine) { marked = index }
	c := recorder{r.machine, r.eventLog, mark, catchup.New(), applied, func() bool { return awaited }, func(string, []*wire.AuditRecord) {}, func(events []*wire.Event) { counted += len(events) }}
	index := r.machine.AppliedIndex()
	apply := func(e *wire.Entry) any {
		index++
		data, err := proto.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return c.Apply(&raft.Log{Index: index, Data: data})
	}
	apply(&wire.Entry{Commands: []*wire.Command{opening("a")}}) // the event log starts here
	w := startWatch(t, r.eventLog, &wire.WatchRequest{})
	if applied, ok := apply(&wire.Entry{Commands: []*wire.Command{opening("b")}, HashPoint: true}).(*fsm.Applied); !ok || len(applied.Results) != 1 {
		t.Errorf("applied: %v", applied)
	}
	if resp, _ := r.eventLog.Read(w); len(resp.Events) != 1 || resp.Events[0].SessionId == 0 || terms != 2 {
		t.Errorf("recorded %v", resp)
	}
	if marked != index {
		t.Errorf("marked: %d", marked)
	}
	if response := c.Apply(&raft.Log{Index: index, Data: []byte("\xff")}); !errors.Is(response.(error), fsm.ErrMalformed) {
		t.Errorf("an entry that is none: %v", response)
	}
	awaited = false
	if response := apply(&wire.Entry{Commands: []*wire.Command{opening("c")}}); response != nil || marked == index {
		t.Errorf("nobody waits for %v", response)
	}
	c.catchUp.End()
	if apply(&wire.Entry{Commands: []*wire.Command{opening("d")}}); counted != 1 {
		t.Errorf("of four entries, %d were counted, want the one after the node had caught up", counted)
	}
	if response := c.Apply(&raft.Log{Index: index, Data: []byte("\xff")}); !errors.Is(response.(error), fsm.ErrMalformed) {
		t.Errorf("an entry that is none, and nobody waits: %v", response)
	}

	cut := func() bool {
		resp, _ := r.eventLog.Read(w)
		return resp.Status == wire.Status_COMPACTED
	}
	var state bytes.Buffer
	r.machine.View(func(m *fsm.Machine) {
		if err := m.Fork().WriteSnapshot(&state); err != nil {
			t.Error(err)
		}
	})
	if err := c.Restore(io.NopCloser(strings.NewReader("none"))); err == nil || cut() {
		t.Errorf("a snapshot that is none: %v", err)
	}
	terms = 0
	if err := c.Restore(io.NopCloser(&state)); err != nil || !cut() || terms != 1 {
		t.Errorf("a snapshot: %v", err)
	}
}

// TestAuditRecordsAreHandedOver applies audited commands and restores a snapshot. The node's audit log gets the records
// of the former, and all of the latter.
func TestAuditRecordsAreHandedOver(t *testing.T) {
	r := governing(t)
	var audited []uint64
	audit := func(cluster string, records []*wire.AuditRecord) {
		if cluster == "" {
			t.Error("audit records of no cluster")
		}
		for _, r := range records {
			audited = append(audited, r.GetId())
		}
	}
	c := recorder{r.machine, r.eventLog, func(uint64, *fsm.Machine) {}, catchup.New(), func(*wire.TermStart) {}, func() bool { return false }, audit, r.sampler.Applied}
	data, err := proto.Marshal(&wire.Entry{Commands: []*wire.Command{opening("a"), adding(), adding()}})
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(&raft.Log{Index: r.machine.AppliedIndex() + 1, Data: data})
	if !slices.Equal(audited, []uint64{1, 2}) {
		t.Errorf("audited %v", audited)
	}
	var state bytes.Buffer
	if err := r.machine.Fork().WriteSnapshot(&state); err != nil {
		t.Fatal(err)
	}
	audited = nil
	if err := c.Restore(io.NopCloser(&state)); err != nil || !slices.Equal(audited, []uint64{1, 2}) {
		t.Errorf("audited after a snapshot: %v, %v", audited, err)
	}
}

// adding returns a command that is audited.
func adding() *wire.Command {
	return &wire.Command{Op: &wire.Command_RecordAct{RecordAct: &wire.RecordAct{Action: wire.AuditRecord_ADD_MEMBER, Member: "n4", Reason: "r"}}}
}
