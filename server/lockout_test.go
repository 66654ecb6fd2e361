package server

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/pki"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// dialAs connects with a token, or without one if it is empty. It returns an error with the goodbye if the node
// refuses it.
func dialAs(t *testing.T, node *Node, token string) (*speaker, error) {
	t.Helper()
	conn, err := transport.TCP{}.Dial(bounded(t), node.Addrs().Client)
	if err != nil {
		t.Fatal(err)
	}
	return speakAs(t, conn, token)
}

func speakAs(t *testing.T, conn net.Conn, token string) (*speaker, error) {
	t.Helper()
	t.Cleanup(func() { transport.Cut(conn) })
	reply, r, err := transport.ClientHandshake(bounded(t), conn, &wire.Hello{Agent: "test", AuthToken: token})
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	return &speaker{t: t, conn: conn, reply: reply, r: r, w: transport.NewFrameWriter(conn, transport.DefaultMaxFrame)}, nil
}

// refusedAs checks that a node refuses a token, or a caller without one.
func refusedAs(t *testing.T, node *Node, token, says string) {
	t.Helper()
	if _, err := dialAs(t, node, token); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("the node says %v, want %q", err, says)
	}
}

// keptBy creates a token for an identity and then a policy that only this identity can change.
func keptBy(t *testing.T, node *Node, name string) (token string) {
	t.Helper()
	token = identity.NewToken()
	c := dial(t, node)
	c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_CreateToken{CreateToken: &wire.CreateTokenRequest{Name: name, AuthToken: token, Reason: "r"}}})
	c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_SetPolicy{SetPolicy: &wire.SetPolicy{
		Policy: &wire.Policy{Bindings: []*wire.Binding{{Identity: name, Roles: []string{"admin"}}}}, Reason: "r",
	}}})
	return token
}

// snapshotIn returns the backup in the newest snapshot of a stopped node: what follows the first line of state.bin.
func snapshotIn(t *testing.T, dataDir string) (file []byte, m *fsm.Machine) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dataDir, "snapshots", "*", "state.bin"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no snapshots: %v", err)
	}
	state, err := os.ReadFile(paths[len(paths)-1])
	if err != nil {
		t.Fatal(err)
	}
	_, file, _ = bytes.Cut(state, []byte("\n"))
	if m, err = fsm.Restore(bytes.NewReader(file), fsm.Level); err != nil {
		t.Fatal(err)
	}
	return file, m
}

// TestLockOutIsHealed loses the only credential that may change the policy, and follows the procedure of
// docs/SECURITY.md: a new cluster gets a policy, and the state in an old data directory is restored into it. The new
// policy stays, the lost credential is worth nothing, and all sessions and holds are over.
func TestLockOutIsHealed(t *testing.T) {
	cfg := quick(t)
	cfg.SnapshotThreshold, cfg.SnapshotInterval = 1, 10*time.Millisecond
	old := open(t, cfg)
	serving(t, old)
	lost := keptBy(t, old, "ann")
	refusedAs(t, old, "", "gives \"anonymous\" none")
	c, err := dialAs(t, old, lost)
	if err != nil {
		t.Fatal(err)
	}
	session := c.open("the secret of a session")
	held := c.expect(wire.Status_GRANTED, acquire(session, 1, "orders/1")).GetResult()
	eventually(t, "a snapshot with the lock", func() bool {
		c.expect(wire.Status_OK, heartbeat(session))
		paths, _ := filepath.Glob(filepath.Join(cfg.DataDir, "snapshots", "*", "state.bin"))
		for _, path := range paths {
			if state, _ := os.ReadFile(path); bytes.Contains(state, []byte("orders/1")) {
				return true
			}
		}
		return false
	})
	shut(t, old)
	_, backup := snapshotIn(t, cfg.DataDir)
	if policy, _ := backup.Access().Policy(); policy == nil {
		t.Fatal("the snapshot has no policy")
	}

	fresh := open(t, quick(t))
	serving(t, fresh)
	ben := keptBy(t, fresh, "ben")
	if c, err = dialAs(t, fresh, ben); err != nil {
		t.Fatal(err)
	}
	if _, err := restoreInto(t, fresh, backup, ""); err == nil || !strings.Contains(err.Error(), "--replace") {
		t.Errorf("without the name of the new cluster: %v", err)
	}
	answer, err := restoreInto(t, fresh, backup, c.reply.GetClusterId())
	if err != nil || answer.GetTokenFloor() <= held.GetToken() {
		t.Fatalf("%v, %v after token %d", answer, err, held.GetToken())
	}

	refusedAs(t, fresh, "", "gives \"anonymous\" none")
	refusedAs(t, fresh, lost, "the token is unknown")
	c.expect(wire.Status_SESSION_LOST, attach(session, "the secret of a session"))
	c.expect(wire.Status_NOT_FOUND, &wire.Request{Body: &wire.Request_GetLock{GetLock: &wire.GetLockRequest{Name: "orders/1"}}})
	policy := c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_GetPolicy{GetPolicy: &wire.GetPolicyRequest{}}}).GetGetPolicy()
	if administrator := policy.GetPolicy().GetBindings()[0].GetIdentity(); administrator != "ben" {
		t.Errorf("the policy is kept by %s", administrator)
	}
	next := c.open("the secret of another session")
	if granted := c.expect(wire.Status_GRANTED, acquire(next, 1, "orders/1")).GetResult(); granted.GetToken() <= held.GetToken() {
		t.Errorf("token %d after %d", granted.GetToken(), held.GetToken())
	}
}

// restoreInto restores a backup as qlock snapshot restore does.
func restoreInto(t *testing.T, node *Node, m *fsm.Machine, clusterID string) (*wire.RestoreResponse, error) {
	t.Helper()
	policy, _ := m.Access().Policy()
	ben := &wire.Caller{Identity: "ben"}
	return node.Replica().Restore(identity.NewContext(context.WithoutCancel(bounded(t)), ben), &wire.RestoreRequest{
		Backup: &wire.Backup{ClusterId: m.ClusterID(), Revision: m.Revision(), Token: m.Token(), Sha256: make([]byte, 32)}, Settings: m.Settings(),
		Reason: "r", ClusterId: clusterID, Policy: policy, Tokens: m.Access().TokenRecords(),
	})
}

// TestRestoreKeepsAClusterClosed restores a backup with a policy into a new cluster, which has none: the policy and the
// tokens of the backup are in force from then on.
func TestRestoreKeepsAClusterClosed(t *testing.T) {
	lost := open(t, quick(t))
	serving(t, lost)
	token := keptBy(t, lost, "ann")
	var m *fsm.Machine
	lost.Replica().View(func(state *fsm.Machine) { m = state.Fork() })
	shut(t, lost)

	fresh := open(t, quick(t))
	serving(t, fresh)
	if _, err := restoreInto(t, fresh, m, ""); err != nil {
		t.Fatal(err)
	}
	refusedAs(t, fresh, "", "gives \"anonymous\" none")
	if _, err := dialAs(t, fresh, token); err != nil {
		t.Errorf("the token of the backup is refused: %v", err)
	}
}

// TestLockOutIsHealedByANewAuthority loses the certificate that may change the policy, and the authority's key. A
// second authority in the file of --tls-ca signs a certificate with the same name, which the node accepts without a
// restart.
func TestLockOutIsHealedByANewAuthority(t *testing.T) {
	old, next := t.TempDir(), t.TempDir()
	for dir, nodes := range map[string][]pki.Node{old: {{ID: "n1"}}, next: nil} {
		if _, err := pki.Init(dir, "c1", nodes, []string{"ann"}); err != nil {
			t.Fatal(err)
		}
	}
	authorities := filepath.Join(t.TempDir(), "authorities.crt")
	trust := func(dirs ...string) {
		var bundle []byte
		for _, dir := range dirs {
			ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
			if err != nil {
				t.Fatal(err)
			}
			bundle = append(bundle, ca...)
		}
		if err := os.WriteFile(authorities, bundle, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trust(old)
	pair := func(dir, name, ca string) transport.TLSFiles {
		at := filepath.Join(dir, name)
		return transport.TLSFiles{Cert: at + ".crt", Key: at + ".key", CA: ca}
	}
	cfg := quick(t)
	cfg.TLS, cfg.PeerTLS = pair(old, "nodes/n1/server", authorities), pair(old, "nodes/n1/peer", filepath.Join(old, "ca.crt"))
	cfg.TLS.CRL = pki.CRLPath(old)
	node := open(t, cfg)
	serving(t, node)
	as := func(dir string) (*speaker, error) {
		config, err := pair(dir, "clients/ann/client", filepath.Join(old, "ca.crt")).ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		conn, err := transport.Dial(bounded(t), nil, node.Addrs().Client, config)
		if err != nil {
			return nil, err
		}
		return speakAs(t, conn, "")
	}
	c, err := as(old)
	if err != nil {
		t.Fatal(err)
	}
	policy := &wire.Policy{Bindings: []*wire.Binding{{Identity: "ann", Roles: []string{"admin"}}}}
	c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: policy, Reason: "r"}}})
	if res := node.Replica().CheckChange(&wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: policy}}}); res != nil {
		t.Errorf("the policy, from a caller without a certificate: %v", res)
	}
	if _, err := as(next); err == nil {
		t.Error("the node accepts a certificate of an authority that it does not have")
	}
	trust(old, next)
	eventually(t, "the new authority", func() bool { c, err = as(next); return err == nil })
	c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_GetPolicy{GetPolicy: &wire.GetPolicyRequest{}}})
}

// TestLockOutIsRefused asks a node that accepts no client certificates, on both ports, for changes after which nobody
// could prove an identity that may change the policy.
func TestLockOutIsRefused(t *testing.T) {
	node := open(t, quick(t))
	serving(t, node)
	const says = "this node accepts no client certificates"
	c := dial(t, node)
	policy := &wire.Policy{Bindings: []*wire.Binding{{Identity: "ann", Roles: []string{"admin"}}}}
	set := &wire.Request{Body: &wire.Request_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: policy, Reason: "r"}}}
	if res := c.expect(wire.Status_FAILED_PRECONDITION, set).GetResult(); !strings.Contains(res.GetMessage(), says) {
		t.Errorf("a policy without a token: %v", res)
	}
	body := `{"reason":"r","policy":{"bindings":[{"identity":"ann","roles":["admin"]}]}}`
	if code := post(t, node, "", "AccessService/SetPolicy", body); code != http.StatusBadRequest {
		t.Errorf("a policy without a token over HTTP: %d", code)
	}
	token := keptBy(t, node, "ann")
	c, err := dialAs(t, node, token)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := identity.HashToken(token)
	if err != nil {
		t.Fatal(err)
	}
	id := identity.TokenID(sum)
	revoke := &wire.Request{Body: &wire.Request_RevokeToken{RevokeToken: &wire.RevokeToken{TokenId: id, Reason: "r"}}}
	if res := c.expect(wire.Status_FAILED_PRECONDITION, revoke).GetResult(); !strings.Contains(res.GetMessage(), says) {
		t.Errorf("the last token: %v", res)
	}
	if code := post(t, node, token, "AccessService/RevokeToken", `{"reason":"r","tokenId":"`+id+`"}`); code != http.StatusBadRequest {
		t.Errorf("the last token over HTTP: %d", code)
	}
	another := &wire.CreateTokenRequest{Name: "ann", AuthToken: identity.NewToken(), Reason: "r"}
	c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_CreateToken{CreateToken: another}})
	c.expect(wire.Status_OK, revoke)
}
