package httpapi

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/pki"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// revokeToken revokes the token of user.
func revokeToken(t *testing.T, c *cluster, r *rights.Cluster) {
	sum, err := identity.HashToken(r.Tokens["user"])
	if err != nil {
		t.Fatal(err)
	}
	c.change(&wire.Command{Op: &wire.Command_RevokeToken{RevokeToken: &wire.RevokeToken{TokenId: identity.TokenID(sum), Reason: "test"}}})
}

// removeBinding removes the binding of user.
func removeBinding(_ *testing.T, c *cluster, _ *rights.Cluster) {
	policy := rights.Policy()
	policy.Bindings = slices.DeleteFunc(policy.Bindings, func(b *wire.Binding) bool { return b.Identity == "user" })
	_, revision := c.machine.Access().Policy()
	c.change(&wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: policy, ExpectedRevision: revision, Reason: "test"}}})
}

var withdrawals = map[string]func(*testing.T, *cluster, *rights.Cluster){"token": revokeToken, "binding": removeBinding}

// withClient returns the same port with another client, and the latest connection of that client.
func (p *port) withClient(client *http.Client) (here *port, last func() *dialledConn) {
	p.t.Cleanup(client.CloseIdleConnections)
	other := *p
	other.client = client
	return &other, lastOf(client)
}

// clients makes clients of both versions of HTTP.
var clients = map[string]func(*testing.T) *http.Client{
	"HTTP/1.1": func(*testing.T) *http.Client { return &http.Client{Transport: &http.Transport{}} },
	"HTTP/2":   h2c,
}

// TestRevokedCallersAreDismissed verifies that a waiting acquire and a watch end when the token of their caller is
// revoked, with their connection, and that others go on.
func TestRevokedCallersAreDismissed(t *testing.T) {
	for version, client := range clients {
		leader, _, c, r := governed(t)
		waiter, waiterConn := leader.withClient(client(t))
		watcher, watcherConn := leader.withClient(client(t))
		answered := make(chan reply, 1)
		go func() {
			answered <- waiter.as(r.Tokens["user"], "LeaseService/Acquire", `{"secret":"MDEyMzQ1Njc4OWFiY2RlZg==","acquire":{"locks":[{"name":"`+rights.Lock+`"}],"waitForever":true}}`)
		}()
		watching := make(chan reply, 1)
		go func() { watching <- watcher.as(r.Tokens["user"], "LockService/Watch", `{}`) }()
		c.queued(rights.Lock, 1)
		revokeToken(t, c, r)
		soon(t, answered).refused(http.StatusUnauthorized, wire.Status_UNAUTHENTICATED)
		soon(t, watching)
		eventually(t, version+": the end of the waiter's connection", waiterConn().closed.Load)
		eventually(t, version+": the end of the watcher's connection", watcherConn().closed.Load)
		leader.as(r.Tokens["admin"], "LockService/List", "{}").ok()
	}
}

// TestWatchOfADismissedCallerEndsWithItsStatus verifies that the last line of a watch names the reason when the credential
// or the rights of its caller are withdrawn.
func TestWatchOfADismissedCallerEndsWithItsStatus(t *testing.T) {
	reasons := map[string]string{"token": "UNAUTHENTICATED", "binding": "PERMISSION_DENIED"}
	for version, client := range clients {
		for withdrawn, withdraw := range withdrawals {
			leader, _, c, r := governed(t)
			watcher, conn := leader.withClient(client(t))
			v := watcher.watchAs(r.Tokens["user"], "{}")
			first := v.next()
			withdraw(t, c, r)
			last := v.next()
			for last["status"] == "OK" { // marks of progress
				last = v.next()
			}
			if last["status"] != reasons[withdrawn] || last["message"] == "" || last["lineage"] != first["lineage"] || last["revision"] == "0" {
				t.Errorf("%s, %s: the last line is %v", version, withdrawn, last)
			}
			if line, err := v.lines.ReadString('\n'); !errors.Is(err, io.EOF) || line != "" {
				t.Errorf("%s, %s: the last line is followed by %q, %v", version, withdrawn, line, err)
			}
			eventually(t, version+": the end of the watcher's connection", conn().closed.Load)
		}
	}
}

// TestIdleConnectionsOfDismissedCallersAreClosed verifies that a connection without a request ends when the credential
// or the rights of its latest caller are withdrawn, and that those of others stay.
func TestIdleConnectionsOfDismissedCallersAreClosed(t *testing.T) {
	for version, client := range clients {
		for withdrawn, withdraw := range withdrawals {
			leader, _, c, r := governed(t)
			user, conn := leader.withClient(client(t))
			shared, sharedConn := leader.withClient(client(t))
			user.as(r.Tokens["admin"], "LockService/List", "{}").ok()
			user.as(r.Tokens["user"], "LockService/List", "{}").ok()
			shared.as(r.Tokens["user"], "LockService/List", "{}").ok()
			shared.as(r.Tokens["admin"], "LockService/List", "{}").ok()
			kept := sharedConn()
			withdraw(t, c, r)
			eventually(t, version+": the end of the connection whose "+withdrawn+" was withdrawn", conn().closed.Load)
			shared.as(r.Tokens["admin"], "LockService/List", "{}").ok()
			if sharedConn() != kept {
				t.Errorf("%s, %s: a connection that admin has used since was closed", version, withdrawn)
			}
		}
	}
}

// TestIdleConnectionsOfRevokedCertificatesAreClosed does so for a certificate that the revocation list names.
func TestIdleConnectionsOfRevokedCertificatesAreClosed(t *testing.T) {
	dir := authority(t)
	if _, err := pki.Extend(dir, "c1", nil, []string{"lost"}); err != nil {
		t.Fatal(err)
	}
	var denied atomic.Pointer[access.Denial]
	p := start(t, newCluster(t), "n1", secured(dir, "n1", AuthRequire), func(c *Config) {
		c.TLS.CRL, c.Denials = pki.CRLPath(dir), func(d access.Denial) { denied.Store(&d) }
	})
	conns := map[string]*dialledConn{}
	clients := map[string]*http.Client{"ops": caller(t, dir, "clients/ops/client"), "lost": caller(t, dir, "clients/lost/client")}
	for name, client := range clients {
		last := lastOf(client)
		if got, text := fetch(t, client, p, "/quorumlock.v1.LockService/List"); got != http.StatusOK {
			t.Fatalf("%s: %d %s", name, got, text)
		}
		conns[name] = last()
	}
	if _, err := pki.Revoke(dir, []string{"lost"}, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the connection with the revoked certificate", conns["lost"].closed.Load)
	if d := denied.Load(); d == nil || d.Status != wire.Status_UNAUTHENTICATED || d.Caller.GetIdentity() != "lost" || !strings.Contains(d.Message, "revoked") {
		t.Errorf("denied %v", d)
	}
	if got, text := fetch(t, clients["ops"], p, "/quorumlock.v1.LockService/List"); got != http.StatusOK || conns["ops"].closed.Load() {
		t.Errorf("another certificate: %d %s; its connection has ended: %v", got, text, conns["ops"].closed.Load())
	}
}

// TestFollowerDismissesForwardedRequests verifies that the answer names the reason if a follower dismisses the caller of
// a request that waits at the leader, which does not know yet that the certificate is revoked.
func TestFollowerDismissesForwardedRequests(t *testing.T) {
	dir := authority(t)
	if _, err := pki.Extend(dir, "c1", nil, []string{"user"}); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	c.machine = rights.New(t).Machine
	start(t, c, "n1", secured(dir, "n1", AuthRequire))
	follower := start(t, c, "n2", secured(dir, "n2", AuthRequire), func(c *Config) { c.TLS.CRL = pki.CRLPath(dir) })
	follower.client = caller(t, dir, "clients/user/client")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+follower.addr+"/quorumlock.v1.LeaseService/Acquire", strings.NewReader(
		`{"secret":"MDEyMzQ1Njc4OWFiY2RlZg==","acquire":{"locks":[{"name":"`+rights.Lock+`"}],"waitForever":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	answered := make(chan reply, 1)
	go func() { answered <- follower.response(req) }()
	c.queued(rights.Lock, 1)
	if _, err := pki.Revoke(dir, []string{"user"}, nil); err != nil {
		t.Fatal(err)
	}
	soon(t, answered).refused(http.StatusUnauthorized, wire.Status_UNAUTHENTICATED)
}
