package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestSeqOfAnotherKindOfRequest verifies that the outcome of an acquire is not returned for a release with
// the same sequence number.
func TestSeqOfAnotherKindOfRequest(t *testing.T) {
	c := newCluster(t)
	p := start(t, c, "n1")
	ann := p.open("ann")
	held := ann.send("LockService/Acquire", `"seq":1,"name":"a"`).ok()
	hold := `"holdId":"` + held["holdId"].(string) + `","token":"` + held["token"].(string) + `"`
	ann.send("LockService/Release", `"seq":1,`+hold).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
	ann.send("LockService/Release", `"seq":2,`+hold).ok()
	ann.send("LockService/Acquire", `"seq":2,"name":"a"`).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
}

func TestLifeOfALock(t *testing.T) {
	c := newCluster(t)
	p := start(t, c, "n1")
	ann := p.open("ann")

	got := ann.send("LockService/Acquire", `"seq":"1","name":"orders/1","value":"aGk="`)
	fields := got.ok()
	if fields["status"] != "GRANTED" || fields["token"] != "1" || fields["remainingTtlMs"] != "14000" {
		t.Fatalf("acquire: %s", got.body)
	}
	if _, ok := fields["holders"].([]any); !ok || fields["message"] != "" {
		t.Errorf("empty fields must be shown: %s", got.body)
	}
	if strings.ContainsAny(got.body, " \n") {
		t.Errorf("the body is not compact: %q", got.body)
	}
	hold := `"holdId":"` + fields["holdId"].(string) + `","token":"1"`

	if got := ann.send("SessionService/Heartbeat", `"session":null`); got.status != http.StatusBadRequest {
		t.Errorf("a field given twice: %s", got.body)
	}
	if got := ann.post("SessionService/Heartbeat", `{`+ann.creds+`}`).ok(); got["ttlMs"] != 15_000.0 {
		t.Errorf("heartbeat: %v", got)
	}
	if got := ann.send("LockService/SetValue", `"seq":"2",`+hold+`,"value":"eW8="`).ok(); got["status"] != "OK" {
		t.Errorf("set value: %v", got)
	}
	shown := p.post("LockService/Get", `{"name":"orders/1"}`)
	holder := shown.ok()["holders"].([]any)[0].(map[string]any)
	if holder["value"] != "eW8=" || holder["mode"] != "EXCLUSIVE" || holder["heartbeatAgeMs"] != "1000" || holder["client"].(map[string]any)["name"] != "ann" {
		t.Errorf("get: %s", shown.body)
	}
	if listed := p.post("LockService/List", `{"prefix":"orders/"}`); len(listed.ok()["locks"].([]any)) != 1 {
		t.Errorf("list: %s", listed.body)
	}
	sessions := p.post("SessionService/List", `{}`)
	address := sessions.ok()["sessions"].([]any)[0].(map[string]any)["client"].(map[string]any)["address"].(string)
	if !strings.HasPrefix(address, "127.0.0.1:") || strings.Contains(sessions.body, "ecret") {
		t.Errorf("sessions: %s", sessions.body)
	}
	for _, status := range []string{"OK", "OK"} {
		if got := ann.send("LockService/Release", `"seq":"3",`+hold).ok(); got["status"] != status {
			t.Errorf("release: %v", got)
		}
	}
	if got := ann.send("LockService/Release", `"seq":"4","holdId":"77","token":"1"`).ok(); got["status"] != "NOT_HELD" {
		t.Errorf("release of another hold: %v", got)
	}
	if got := ann.post("SessionService/Close", `{`+ann.creds+`}`); got.body != "{}" {
		t.Errorf("close: %s", got.body)
	}
	ann.post("SessionService/Heartbeat", `{`+ann.creds+`}`).refused(http.StatusNotFound, wire.Status_SESSION_LOST)
	p.post("LockService/Get", `{"name":"orders/1"}`).refused(http.StatusNotFound, wire.Status_NOT_FOUND)
}

// TestSessionOfBeforeARestore verifies that the caller learns why its session ended, even after other
// sessions were opened.
func TestSessionOfBeforeARestore(t *testing.T) {
	c := newCluster(t)
	p := start(t, c, "n1")
	ann := p.open("ann")
	ann.send("LockService/Acquire", `"seq":1,"name":"a"`).ok()
	c.must(&wire.Command{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{
		Lineage: "second", Operator: "op", Reason: "disaster", ClusterId: "c1", Settings: fsm.DefaultSettings(),
		Backup: &wire.Backup{ClusterId: "c1", Sha256: make([]byte, 32)},
	}}})
	p.open("bob")
	for _, got := range []reply{
		ann.post("SessionService/Heartbeat", `{`+ann.creds+`}`),
		ann.send("LockService/Acquire", `"seq":2,"name":"b"`),
		ann.send("LockService/Release", `"seq":3,"holdId":"1","token":"1"`),
	} {
		message := got.refused(http.StatusNotFound, wire.Status_SESSION_LOST)
		detail := got.fields()["details"].([]any)[0].(map[string]any)["debug"].(map[string]any)
		if !strings.Contains(message, "a backup was restored") || detail["restored"] != true {
			t.Errorf("%q, %v", message, detail)
		}
	}
	never := strings.Replace(ann.creds, ann.id, "9007199254740991", 1)
	if message := ann.post("SessionService/Heartbeat", `{`+never+`}`).refused(http.StatusNotFound, wire.Status_SESSION_LOST); strings.Contains(message, "restored") {
		t.Errorf("a session that never was: %q", message)
	}
}

func TestOpenAgainIsTheSameSession(t *testing.T) {
	p := start(t, newCluster(t), "n1")
	if first, second := p.open("ann").id, p.open("ann").id; first != second {
		t.Errorf("sessions %s and %s", first, second)
	}
	if first, second := p.open("ann").id, p.open("bob").id; first == second {
		t.Errorf("two secrets opened one session")
	}
}

func TestSecrets(t *testing.T) {
	p := start(t, newCluster(t), "n1")
	ann := p.open("ann")
	other := strings.Replace(ann.creds, `"secret":"`, `"secret":"AAAA`, 1)
	for _, test := range []struct {
		name, creds string
		http        int
		status      wire.Status_Code
	}{
		{"wrong", other, http.StatusForbidden, wire.Status_PERMISSION_DENIED},
		{"missing", `"session":{"sessionId":"1"}`, http.StatusBadRequest, wire.Status_INVALID_ARGUMENT},
		{"short", `"session":{"sessionId":"1","secret":"c2hvcnQ="}`, http.StatusBadRequest, wire.Status_INVALID_ARGUMENT},
		{"no session", `"session":{}`, http.StatusBadRequest, wire.Status_INVALID_ARGUMENT},
		{"unknown session", strings.Replace(ann.creds, ann.id, "99", 1), http.StatusNotFound, wire.Status_SESSION_LOST},
	} {
		t.Run(test.name, func(t *testing.T) {
			bad := &visitor{port: p.in(t), creds: test.creds}
			bad.post("SessionService/Heartbeat", `{`+test.creds+`}`).refused(test.http, test.status)
			bad.post("SessionService/Close", `{`+test.creds+`}`).refused(test.http, test.status)
			bad.send("LockService/Acquire", `"seq":1,"name":"a"`).refused(test.http, test.status)
			bad.send("LockService/Release", `"seq":1,"holdId":1,"token":1`).refused(test.http, test.status)
		})
	}
	p.post("SessionService/Open", `{"secret":"c2hvcnQ="}`).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
	p.post("SessionService/Open", `{}`).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
}

func TestSequenceNumbers(t *testing.T) {
	p := start(t, newCluster(t), "n1")
	ann := p.open("ann")
	for _, seq := range []string{`"seq":0`, `"seq":"4611686018427387904"`, `"seq":1,"ackedBelow":"9223372036854775808"`} {
		ann.send("LockService/Acquire", seq+`,"name":"a"`).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
		ann.send("LockService/Release", seq+`,"holdId":1,"token":1`).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
	}
}

// TestAcknowledgedWaitsLeaveTheWindow verifies that a session that keeps acquiring and acknowledging stays
// within its window, even if every request had to wait.
func TestAcknowledgedWaitsLeaveTheWindow(t *testing.T) {
	c := newCluster(t)
	p := start(t, c, "n1")
	ann, bob := p.open("ann"), p.open("bob")
	seq := 0
	for round := range 3 {
		seq++
		held := ann.send("LockService/Acquire", fmt.Sprintf(`"seq":%d,"ackedBelow":%d,"name":"a"`, seq, seq)).ok()
		waiting := bob.later(t.Context(), fmt.Sprintf(`"seq":%d,"ackedBelow":%d,"name":"a","waitForever":true`, seq, seq))
		c.queued("a", 1)
		seq++
		ann.send("LockService/Release", fmt.Sprintf(`"seq":%d,"holdId":%q,"token":%q`, seq, held["holdId"], held["token"])).ok()
		got := soon(t, waiting).ok()
		bob.send("LockService/Release", fmt.Sprintf(`"seq":%d,"holdId":%q,"token":%q`, seq, got["holdId"], got["token"])).ok()
		if round == 0 {
			continue
		}
		c.mu.Lock()
		for past := range seq - 2 {
			if _, known := c.machine.Outcome(bob.num, uint64(past)); known {
				t.Errorf("request %d is remembered after %d were acknowledged", past, seq)
			}
		}
		c.mu.Unlock()
	}
}

func TestCluster(t *testing.T) {
	c := newCluster(t)
	p := start(t, c, "n1")
	got := p.post("ClusterService/Status", `{}`)
	if fields := got.ok(); fields["leaderId"] != "n1" || fields["nodeId"] != "n1" || fields["term"] != "1" {
		t.Errorf("status: %s", got.body)
	}
	p.post("ClusterService/AddMember", `{"id":"n4","peerAddr":"127.0.0.1:1"}`).ok()
	p.post("ClusterService/RemoveMember", `{"id":"n2"}`).ok()
	p.post("ClusterService/AddMember", `{"id":"n4"}`).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
	p.post("ClusterService/SetDrained", `{"id":"n2","drained":true}`).ok()
	if got := p.post("ClusterService/AcknowledgeAlarms", `{"reason":"seen","operator":"ann"}`).ok(); got["revision"] != "77" {
		t.Errorf("acknowledge: %v", got)
	}
	start(t, c, "n3")
	if got := p.post("ClusterService/TransferLeadership", `{"id":"n3"}`).ok(); got["leaderId"] != "n3" {
		t.Errorf("transfer: %v", got)
	}
	if got := strings.Join(c.changes, ", "); got != "add n4, remove n2, drain n2 true, acknowledge seen, transfer n3" {
		t.Errorf("changes: %s", got)
	}
}

func TestStaleReadsNeedNoLeader(t *testing.T) {
	c := newCluster(t)
	p := start(t, c, "n1")
	p.open("ann").send("LockService/Acquire", `"seq":1,"name":"a"`).ok()
	c.lead("")
	for _, read := range []struct{ procedure, body string }{
		{"LockService/Get", `{"name":"a"`}, {"LockService/List", `{"prefix":""`},
		{"SessionService/List", `{"pageSize":1`}, {"ClusterService/Status", `{"stale":false`},
	} {
		p.post(read.procedure, read.body+`}`).refused(http.StatusServiceUnavailable, wire.Status_UNAVAILABLE)
		p.post(read.procedure, strings.Replace(read.body, `"stale":false`, `"stale":true`, 1)+map[bool]string{true: `}`, false: `,"stale":true}`}[strings.Contains(read.body, "stale")]).ok()
	}
}
