package httpapi

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

func TestOperators(t *testing.T) {
	c := newCluster(t)
	start(t, c, "n1")
	p := start(t, c, "n2") // a follower
	ann := p.open("ann")
	held := ann.send("LockService/Acquire", `"seq":1,"name":"a","lockDelayMs":5000`).ok()
	ann.send("LockService/Acquire", `"seq":2,"name":"pool","limit":3`).ok()
	hold := fmt.Sprintf(`{"holdId":%q,"token":%q,`, held["holdId"], held["token"])
	for _, step := range []struct{ procedure, body, status string }{
		{"Revoke", hold + `"reason":"please","graceMs":1000,"operator":"eve"}`, "OK"},
		{"ForceRelease", fmt.Sprintf(`{"holdId":%q,"token":"99","reason":"stuck"}`, held["holdId"]), "NOT_HELD"},
		{"ForceRelease", hold + `"reason":"stuck","operator":"eve"}`, "OK"},
		{"ForceRelease", hold + `"reason":"stuck","operator":"eve"}`, "NOT_HELD"},
		{"SkipDelay", `{"name":"a","reason":"checked","operator":"eve"}`, "OK"},
		{"SkipDelay", `{"name":"a","reason":"checked","operator":"eve"}`, "NOT_FOUND"},
		{"Resize", `{"name":"pool","limit":5,"reason":"more","operator":"eve"}`, "OK"},
		{"Resize", `{"name":"a","limit":5,"reason":"more","operator":"eve"}`, "NOT_FOUND"},
		{"ForceClose", `{"sessionId":"9","reason":"gone","operator":"eve"}`, "NOT_FOUND"},
		{"ForceClose", fmt.Sprintf(`{"sessionId":%q,"reason":"gone","operator":"eve"}`, ann.id), "OK"},
	} {
		if got := p.post("OperatorService/"+step.procedure, step.body).ok(); got["status"] != step.status {
			t.Errorf("%s %s: %v", step.procedure, step.body, got)
		}
	}
	p.post("OperatorService/ForceRelease", hold+`"operator":"eve"}`).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
	audit := p.post("OperatorService/ListAudit", `{"pageSize":2}`).ok()
	records := audit["records"].([]any)
	if len(records) != 2 || records[1].(map[string]any)["action"] != "RESIZE" || records[0].(map[string]any)["action"] != "FORCE_CLOSE" || audit["nextPageToken"] == "" {
		t.Errorf("audit: %v", audit)
	}
	if n := p.log.String(); strings.Contains(n, "panicked") {
		t.Error(n)
	}
}

func TestRestoreTakesALargeAudit(t *testing.T) {
	c := newCluster(t)
	start(t, c, "n1")
	p := start(t, c, "n2")
	record := `{"id":"1","action":"RESIZE","reason":"` + strings.Repeat("r", 256) + `","lock":"` + strings.Repeat("l", 512) + `"}`
	body := `{"backup":{"token":"7"},"reason":"lost","audit":[` + strings.TrimSuffix(strings.Repeat(record+",", 256), ",") + `]}`
	if got := p.post("OperatorService/Restore", body).ok(); got["tokenFloor"] != fmt.Sprint(7+1<<32) {
		t.Errorf("restored: %v", got)
	}
	tooLarge := p.post("OperatorService/Restore", `{"reason":"`+strings.Repeat("r", 2<<20)+`"}`)
	if tooLarge.status != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d: %s", tooLarge.status, tooLarge.body)
	}
}

// TestStaleSnapshotIsSaved verifies that, without a leader, any node sends its own state and describes it.
func TestStaleSnapshotIsSaved(t *testing.T) {
	c := newCluster(t)
	c.lead("")
	p := start(t, c, "n2")
	var want bytes.Buffer
	if err := c.node("n2").Fork().WriteSnapshot(&want); err != nil {
		t.Fatal(err)
	}
	plain := p.post("OperatorService/SaveSnapshot", `{"reason":"lost","stale":true}`)
	if plain.status != http.StatusOK || plain.body != want.String() {
		t.Errorf("status %d, %d bytes, want %d", plain.status, len(plain.body), want.Len())
	}
	if about := plain.header.Get("Quorumlock-Stale-Snapshot"); !strings.Contains(about, `"nodeId":"n2"`) || !strings.Contains(about, `"committedIndex":"8"`) {
		t.Errorf("described as %q", about)
	}
	for name, options := range protocols(t) {
		stream, err := wireconnect.NewOperatorServiceClient(h2c(t), "http://"+p.addr, options...).SaveSnapshot(t.Context(), connect.NewRequest(&wire.SaveSnapshotRequest{Reason: "lost", Stale: true}))
		if err != nil {
			t.Fatal(name, err)
		}
		if !stream.Receive() || stream.Msg().GetStale().GetNodeId() != "n2" || len(stream.Msg().GetChunk()) > 0 {
			t.Errorf("%s: first %v, %v", name, stream.Msg(), stream.Err())
		}
		var got []byte
		for stream.Receive() {
			got = append(got, stream.Msg().GetChunk()...)
		}
		if stream.Err() != nil || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%s: %d bytes, %v", name, len(got), stream.Err())
		}
		_ = stream.Close()
	}
	p.post("OperatorService/SaveSnapshot", `{"stale":true}`).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
}

// TestSnapshotIsSaved verifies that curl gets the raw snapshot and programs get it in pieces, from a follower
// as well.
func TestSnapshotIsSaved(t *testing.T) {
	c := newCluster(t)
	for _, p := range []*port{start(t, c, "n1"), start(t, c, "n2")} {
		p.open("ann").send("LockService/Acquire", `"seq":1,"name":"a"`).ok()
		var want bytes.Buffer
		if err := c.node("n1").Fork().WriteSnapshot(&want); err != nil {
			t.Fatal(err)
		}
		plain := p.post("OperatorService/SaveSnapshot", `{"reason":"nightly"}`)
		if plain.status != http.StatusOK || plain.header.Get("Content-Type") != "application/octet-stream" || plain.body != want.String() {
			t.Errorf("status %d, %v, %d bytes, want %d", plain.status, plain.header, len(plain.body), want.Len())
		}
		if _, err := fsm.Restore(strings.NewReader(plain.body), fsm.Level); err != nil {
			t.Error(err)
		}
		for name, options := range protocols(t) {
			stream, err := wireconnect.NewOperatorServiceClient(h2c(t), "http://"+p.addr, options...).SaveSnapshot(t.Context(), connect.NewRequest(&wire.SaveSnapshotRequest{Reason: "test"}))
			if err != nil {
				t.Fatal(name, err)
			}
			var got []byte
			for stream.Receive() {
				got = append(got, stream.Msg().GetChunk()...)
			}
			if stream.Err() != nil || !bytes.Equal(got, want.Bytes()) {
				t.Errorf("%s: %d bytes, %v", name, len(got), stream.Err())
			}
			_ = stream.Close()
		}
	}
	start(t, c, "n4").post("OperatorService/SaveSnapshot", `{}`).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
	c.lead("")
	p := start(t, c, "n3")
	p.post("OperatorService/SaveSnapshot", `{"reason":"nightly"}`).refused(http.StatusServiceUnavailable, wire.Status_UNAVAILABLE)
	if got := p.post("OperatorService/SaveSnapshot", `{"no":1}`); got.status != http.StatusBadRequest {
		t.Errorf("status %d: %s", got.status, got.body)
	}
}
