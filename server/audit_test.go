package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// speakWith is dial with a token.
func speakWith(t *testing.T, node *Node, token string) (*speaker, error) {
	t.Helper()
	conn, err := transport.TCP{}.Dial(bounded(t), node.Addrs().Client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { transport.Cut(conn) })
	reply, r, err := transport.ClientHandshake(bounded(t), conn, &wire.Hello{Agent: "test", AuthToken: token})
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	return &speaker{t: t, conn: conn, reply: reply, r: r, w: transport.NewFrameWriter(conn, transport.DefaultMaxFrame)}, err
}

// post sends a request to the HTTP port and returns its code.
func post(t *testing.T, node *Node, token, procedure, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(bounded(t), http.MethodPost, "http://"+node.Addrs().HTTP+"/quorumlock.v1."+procedure, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// counted returns the values of a counter by its only label.
func counted(t *testing.T, registry *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				values[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	return values
}

// auditLine is a line of an audit log.
type auditLine struct {
	Kind, ClusterID, NodeID, ID, Action, Operator, Request, Status, Suppressed string
	Caller                                                                     struct{ Identity, Credential, Address string }
}

func auditLines(t *testing.T, path string) (lines []auditLine) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for one := range bytes.Lines(text) {
		var l auditLine
		if err := json.Unmarshal(one, &l); err != nil {
			t.Fatalf("%q: %v", one, err)
		}
		lines = append(lines, l)
	}
	return lines
}

// acknowledge is an operator's act that claims another operator.
func acknowledge() *wire.Request {
	return &wire.Request{Body: &wire.Request_AcknowledgeAlarms{AcknowledgeAlarms: &wire.AcknowledgeAlarmsRequest{Reason: "seen", Operator: "somebody else"}}}
}

// withRoles creates a token and a binding for an administrator, root, and a reader, guest. It takes three acts. It leaves
// no connection without a token behind: the node would end it, which counts as a denial.
func withRoles(t *testing.T, node *Node) (tokens map[string]string) {
	t.Helper()
	tokens = map[string]string{"root": identity.NewToken(), "guest": identity.NewToken()}
	for name, token := range tokens {
		body := fmt.Sprintf(`{"name":%q,"authToken":%q,"reason":"setup"}`, name, token)
		if code := post(t, node, "", "AccessService/CreateToken", body); code != http.StatusOK {
			t.Fatalf("token of %s: %d", name, code)
		}
	}
	policy := &wire.Policy{Bindings: []*wire.Binding{{Identity: "root", Roles: []string{"admin"}}, {Identity: "guest", Roles: []string{"reader"}}}}
	mustSpeakWith(t, node, tokens["root"]).expect(wire.Status_OK, &wire.Request{Body: &wire.Request_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: policy, Reason: "setup"}}})
	return tokens
}

func mustSpeakWith(t *testing.T, node *Node, token string) *speaker {
	t.Helper()
	s, err := speakWith(t, node, token)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAuditLog operates a node over both ports, is refused on both, and restarts the node. The file must have each act
// once, with the verified caller, and few of many denials.
func TestAuditLog(t *testing.T) {
	cfg := quick(t)
	cfg.AuditLog = filepath.Join(t.TempDir(), "audit.log")
	cfg.Registry = prometheus.NewRegistry()
	node := open(t, cfg)
	serving(t, node)
	tokens := withRoles(t, node)
	mustSpeakWith(t, node, tokens["root"]).expect(wire.Status_OK, acknowledge())
	if code := post(t, node, tokens["root"], "ClusterService/AcknowledgeAlarms", `{"reason":"seen"}`); code != http.StatusOK {
		t.Errorf("root over HTTP: %d", code)
	}
	guest := mustSpeakWith(t, node, tokens["guest"])
	const denials = 40
	for range denials {
		guest.expect(wire.Status_PERMISSION_DENIED, acknowledge())
	}
	for _, body := range []string{"OperatorService/ListAudit {}", `LockService/Watch {"audit":true}`} {
		procedure, body, _ := strings.Cut(body, " ")
		if code := post(t, node, tokens["guest"], procedure, body); code != http.StatusForbidden {
			t.Errorf("guest over HTTP: %d", code)
		}
	}
	if _, err := speakWith(t, node, identity.NewToken()); err == nil {
		t.Error("an unknown token was accepted")
	}
	if code := post(t, node, identity.NewToken(), "OperatorService/ListAudit", `{}`); code != http.StatusUnauthorized {
		t.Errorf("an unknown token over HTTP: %d", code)
	}
	if got := counted(t, cfg.Registry, "quorumlock_denials_total"); got["PERMISSION_DENIED"] != denials+2 || got["UNAUTHENTICATED"] != 2 {
		t.Errorf("denials %v", got)
	}
	shut(t, node)

	cfg.Registry = nil
	node = open(t, cfg)
	serving(t, node)
	mustSpeakWith(t, node, tokens["root"]).expect(wire.Status_OK, acknowledge())
	shut(t, node)
	checkAuditLog(t, cfg.AuditLog, denials/2)
}

// checkAuditLog checks the file of TestAuditLog, which has at most so many denials of guest.
func checkAuditLog(t *testing.T, path string, most int) {
	t.Helper()
	id, refused := 0, map[string]int{}
	for _, l := range auditLines(t, path) {
		switch l.Kind {
		case "ACT":
			if id++; l.ID != strconv.Itoa(id) {
				t.Errorf("record %d: %+v", id, l)
			}
			if l.Action == "ACKNOWLEDGE_ALARMS" && (l.Caller.Identity != "root" || !strings.HasPrefix(l.Caller.Credential, "token ") || !strings.HasPrefix(l.Caller.Address, "127.0.0.1:")) {
				t.Errorf("record %d: %+v", id, l)
			}
		case "DENIED":
			refused[l.Status]++
			if named := l.Caller.Identity == "guest"; named != (l.Status == "PERMISSION_DENIED") || l.Caller.Address == "" || named != (l.Request != "") {
				t.Errorf("denied: %+v", l)
			}
		}
	}
	if id != 6 {
		t.Errorf("%d acts, want 6", id)
	}
	if n := refused["PERMISSION_DENIED"]; n == 0 || n > most {
		t.Errorf("%d denials of guest are written", n)
	}
	if refused["UNAUTHENTICATED"] == 0 {
		t.Error("no refused caller is written")
	}
}

// TestAuditIsWatched verifies that a watch of the audit log gets an act with its caller.
func TestAuditIsWatched(t *testing.T) {
	node := open(t, quick(t))
	serving(t, node)
	tokens := withRoles(t, node)
	watcher := mustSpeakWith(t, node, tokens["root"])
	watcher.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_Watch{Watch: &wire.WatchRequest{Audit: true}}})
	mustSpeakWith(t, node, tokens["root"]).expect(wire.Status_OK, acknowledge())
	for {
		events := watcher.push().GetWatch().GetResponse().GetEvents()
		if len(events) == 0 {
			continue // progress
		}
		if r := events[0].GetAudit(); len(events) != 1 || r.GetId() != 4 || r.GetCaller().GetIdentity() != "root" || r.GetOperator() != "somebody else" {
			t.Errorf("the watch got %v", events)
		}
		return
	}
}

// TestAuditLogThatCannotBeOpened verifies that a node does not start without the file that it is to write.
func TestAuditLogThatCannotBeOpened(t *testing.T) {
	cfg := quick(t)
	cfg.AuditLog = filepath.Join(t.TempDir(), "missing", "audit.log")
	if node, err := Open(bounded(t), cfg); err == nil {
		shut(t, node)
		t.Error("the node started")
	} else if !strings.Contains(err.Error(), "--audit-log") || !strings.Contains(err.Error(), cfg.AuditLog) {
		t.Error(err)
	}
}
