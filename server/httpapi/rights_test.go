package httpapi

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/server/httpapi/forward"
	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// governed starts a leader and a follower of a cluster with the policy of package rights.
func governed(t *testing.T) (leader, follower *port, c *cluster, r *rights.Cluster) {
	c, r = newCluster(t), rights.New(t)
	c.machine = r.Machine
	return start(t, c, "n1"), start(t, c, "n2"), c, r
}

// as posts JSON with a token.
func (p *port) as(token, procedure, body string) reply {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, "http://"+p.addr+"/quorumlock.v1."+procedure, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return p.response(req)
}

// response sends a request. A watch that was cut has no complete response.
func (p *port) response(req *http.Request) reply {
	resp, err := p.client.Do(req)
	if err != nil {
		p.t.Error(err)
		return reply{t: p.t}
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(resp.Body)
	return reply{p.t, resp.StatusCode, resp.Header, string(data)}
}

// change applies a command of the administrator.
func (c *cluster) change(cmd *wire.Command) {
	c.t.Helper()
	cmd.Caller = &wire.Caller{Identity: "admin"}
	c.must(cmd)
}

// TestEveryProcedureByRole sends the request of every procedure as every role, to the leader and to a follower, which
// forwards it.
func TestEveryProcedureByRole(t *testing.T) {
	services := wire.File_quorumlock_v1_service_proto.Services()
	each := func(f func(procedure string, input protoreflect.MessageDescriptor)) {
		for i := range services.Len() {
			for j := range services.Get(i).Methods().Len() {
				f(string(services.Get(i).Name())+"/"+string(services.Get(i).Methods().Get(j).Name()), services.Get(i).Methods().Get(j).Input())
			}
		}
	}
	for _, name := range []string{"leader", "follower"} {
		for _, role := range rights.Roles {
			leader, follower, _, r := governed(t) // requests that are allowed end sessions
			p := map[string]*port{"leader": leader, "follower": follower}[name]
			examples := rights.Requests(r.Hold)
			each(func(procedure string, input protoreflect.MessageDescriptor) {
				body, err := protojson.Marshal(examples[string(input.Name())])
				if err != nil {
					t.Fatal(err)
				}
				allowed := slices.Contains(rights.Allowed[string(input.Name())], role)
				if allowed && (procedure == "LockService/Watch" || procedure == "ClusterService/TransferLeadership") {
					return // a watch does not end by itself, and a transfer ends the test's set-up
				}
				got := p.as(r.Tokens[role], procedure, string(body))
				if denied := got.status == http.StatusForbidden; denied == allowed {
					t.Errorf("%s: %s calls %s: %d %s", name, role, procedure, got.status, got.body)
				}
			})
		}
	}
}

// TestOtherRoutesNeedARole verifies that, under a policy, only health is open to callers without a role.
func TestOtherRoutesNeedARole(t *testing.T) {
	leader, _, _, _ := governed(t)
	for path, route := range leader.server.routes {
		if route.method != http.MethodGet {
			continue
		}
		want := http.StatusForbidden
		if route.open {
			want = http.StatusOK
		}
		if got := leader.get(path); got.status != want {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

// TestForwardedCallersAreBelievedOnlyFromNodes verifies that a caller cannot name another identity, and that the
// identity survives forwarding.
func TestForwardedCallersAreBelievedOnlyFromNodes(t *testing.T) {
	leader, follower, _, r := governed(t)
	for name, p := range map[string]*port{"leader": leader, "follower": follower} {
		if got := p.as(r.Tokens["reader"], "AccessService/WhoAmI", "{}").ok()["caller"].(map[string]any)["identity"]; got != "reader" {
			t.Errorf("%s: the token of reader proves %v", name, got)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.addr+"/quorumlock.v1.AccessService/WhoAmI", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+r.Tokens["reader"])
		req.Header.Set(forward.HeaderFrom, "n2")
		req.Header.Set(forward.HeaderCaller, forward.EncodeCaller(&wire.Caller{Identity: "admin"}))
		if got := p.response(req).ok()["caller"].(map[string]any)["identity"]; got != "reader" {
			t.Errorf("%s: a forged header makes it %v", name, got)
		}
	}
}

// TestCredentialsThatAreRefused verifies that an invalid token is not replaced by anonymity.
func TestCredentialsThatAreRefused(t *testing.T) {
	leader, _, c, _ := governed(t)
	_, revision := c.machine.Access().Policy()
	c.change(&wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{ExpectedRevision: revision, Reason: "test"}}})
	if got := leader.as("", "LockService/List", "{}"); got.status != http.StatusOK {
		t.Errorf("anonymous without a policy: %d %s", got.status, got.body)
	}
	for _, token := range []string{identity.NewToken(), "secret"} {
		got := leader.as(token, "LockService/List", "{}")
		if got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") == "" || strings.Contains(got.body, token) {
			t.Errorf("with the token %s: %d %v %s", token, got.status, got.header, got.body)
		}
	}
}

// TestSessionsBelongToTheirIdentity verifies that the secret alone does not open a session of another identity.
func TestSessionsBelongToTheirIdentity(t *testing.T) {
	leader, follower, _, r := governed(t)
	const secret = `"secret":"MDEyMzQ1Njc4OWFiY2RlZg=="`
	session := leader.as(r.Tokens["user"], "SessionService/Open", "{"+secret+"}").ok()["sessionId"]
	heartbeat := fmt.Sprintf(`{"session":{"sessionId":%q,%s}}`, session, secret)
	for _, p := range []*port{leader, follower} {
		p.as(r.Tokens["user"], "SessionService/Heartbeat", heartbeat).ok()
		p.as(r.Tokens["admin"], "SessionService/Heartbeat", heartbeat).refused(http.StatusForbidden, wire.Status_PERMISSION_DENIED)
	}
}

// TestWithoutARole verifies that an identity whose role was taken away can still give up what it has, and sees nothing
// that requires a role, messages or not.
func TestWithoutARole(t *testing.T) {
	leader, _, c, r := governed(t)
	const secret = `"secret":"MDEyMzQ1Njc4OWFiY2RlZg=="`
	session := leader.as(r.Tokens["user"], "SessionService/Open", "{"+secret+"}").ok()["sessionId"]
	policy := rights.Policy()
	policy.Bindings = slices.DeleteFunc(policy.Bindings, func(b *wire.Binding) bool { return b.Identity == "user" })
	_, revision := c.machine.Access().Policy()
	c.change(&wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: policy, ExpectedRevision: revision, Reason: "test"}}})
	leader.as(r.Tokens["user"], "LockService/List", "{}").refused(http.StatusForbidden, wire.Status_PERMISSION_DENIED)
	for path, route := range leader.server.routes {
		if route.method != http.MethodGet || route.open {
			continue
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+leader.addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+r.Tokens["user"])
		if got := leader.response(req); got.status != http.StatusForbidden {
			t.Errorf("%s: %d", path, got.status)
		}
	}
	leader.as(r.Tokens["user"], "AccessService/WhoAmI", "{}").ok()
	leader.as(r.Tokens["user"], "SessionService/Close", fmt.Sprintf(`{"session":{"sessionId":%q,%s}}`, session, secret)).ok()
}

// TestMalformedRequestsAreNoDenials sends a long name to which the caller has no right.
func TestMalformedRequestsAreNoDenials(t *testing.T) {
	leader, _, _, r := governed(t)
	for _, procedure := range []string{"LockService/Get", "LockService/VerifyToken", "LockService/Watch"} {
		got := leader.as(r.Tokens["other"], procedure, `{"name":"`+strings.Repeat("/", 50_000)+`"}`)
		if got.status != http.StatusBadRequest || len(got.body) > 500 {
			t.Errorf("%s: %d, %.100s", procedure, got.status, got.body)
		}
	}
}
