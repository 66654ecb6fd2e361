package replica

import (
	"bytes"
	"errors"
	"io"
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
	terms := 0
	applied := func(uint64) { terms++ }
	awaited := true
	marked := uint64(0)
	mark := func(index uint64, _ *fsm.Machine) { marked = index }
	var audited []*wire.AuditRecord
	audit := func(cluster string, records []*wire.AuditRecord) {
		if cluster == "" {
			t.Error("audit records of no cluster")
		}
		audited = append(audited, records...)
	}
	c := recorder{r.machine, r.eventLog, mark, catchup.New(), applied, func() bool { return awaited }, audit}
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
	if response := c.Apply(&raft.Log{Index: index, Data: []byte("\xff")}); !errors.Is(response.(error), fsm.ErrMalformed) {
		t.Errorf("an entry that is none, and nobody waits: %v", response)
	}

	apply(&wire.Entry{Commands: []*wire.Command{opening("c"), adding(), adding()}})
	if len(audited) != 2 || audited[0].GetId() != 1 || audited[1].GetId() != 2 {
		t.Errorf("audited %v", audited)
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
	audited = nil
	if err := c.Restore(io.NopCloser(&state)); err != nil || !cut() || terms != 1 {
		t.Errorf("a snapshot: %v", err)
	}
	if len(audited) != 2 || audited[1].GetId() != 2 {
		t.Errorf("audited after a snapshot: %v", audited)
	}
}

// adding returns a command that is audited.
func adding() *wire.Command {
	return &wire.Command{Op: &wire.Command_RecordAct{RecordAct: &wire.RecordAct{Action: wire.AuditRecord_ADD_MEMBER, Member: "n4", Reason: "r"}}}
}
