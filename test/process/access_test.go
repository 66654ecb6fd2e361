package process_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/test/ports"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// withdrawalBound is how long connections may outlive the credential or the right of their caller: a second, and more
// on a machine that is busy with other tests.
func withdrawalBound() time.Duration {
	if full {
		return time.Second
	}
	return 5 * time.Second
}

// scene is a cluster with TLS and a policy, of which op is the operator. ivy keeps all her rights.
type scene struct {
	t        *testing.T
	c        *process.Cluster
	policy   string            // its file
	owner    *client.Session   // the operator's; other tenants wait for its locks
	redis    map[string]string // the addresses of the Redis ports, by node
	innocent []*tenant
	first    map[*line]bool // the innocent's connections
}

// withdrawal takes the credential or the rights away from a tenant.
type withdrawal struct {
	name string
	// token is set if the tenant presents a token instead of a certificate.
	token bool
	// closes is set if the withdrawal closes the sessions.
	closes bool
	// codes are the possible answers to an acquire that was waiting.
	codes []connect.Code
	// refusal is what qlock says afterwards; empty for an identity that has sessions, but no role.
	refusal string
	// withdraw returns when it was acknowledged, by node.
	withdraw func(_ *scene, tenants []*tenant) map[string]time.Time
}

var unauthenticated = []connect.Code{connect.CodeUnauthenticated}

var withdrawals = []withdrawal{
	{name: "tess", token: true, codes: unauthenticated, refusal: "revoked", withdraw: (*scene).revokeToken},
	{name: "bea", codes: []connect.Code{connect.CodePermissionDenied}, withdraw: (*scene).unbind},
	{name: "carl", codes: unauthenticated, refusal: "revoked", withdraw: (*scene).revokeCertificate},
	{name: "tom", token: true, closes: true, codes: []connect.Code{connect.CodeNotFound, connect.CodeUnauthenticated}, refusal: "revoked", withdraw: (*scene).revokeTokenAndClose},
	{name: "bill", closes: true, codes: []connect.Code{connect.CodeNotFound, connect.CodePermissionDenied}, refusal: `gives "bill" none`, withdraw: (*scene).unbindAndClose},
	{name: "cleo", closes: true, codes: []connect.Code{connect.CodeNotFound, connect.CodeUnauthenticated}, refusal: "revoked", withdraw: (*scene).revokeCertificateAndClose},
}

// identities are those of the tenants.
var identities = []string{"ivy", "tess", "bea", "carl", "tom", "bill", "cleo"}

// TestWithdrawalEndsConnections withdraws a token, a binding and a certificate from tenants of every node. Their
// connections, watches and waiting requests end within a second, and no node accepts them again, except to give up what
// they have without a role. Their locks stay until the TTL, or while a client without a role sends heartbeats, unless --close-sessions ends the sessions, which no node shows any more. Another identity on the same nodes is not disturbed. The bound of a
// second holds on a quiet machine:
//
//	QUORUMLOCK_CHECK=1 go test ./test/process -run '^TestWithdrawalEndsConnections$' -v
func TestWithdrawalEndsConnections(t *testing.T) {
	beside(t)
	options := process.Options{Nodes: 3, Secure: []string{"op", "ivy", "bea", "carl", "bill", "cleo"}, NodeFlags: map[string][]string{}}
	redis := map[string]string{}
	for i, addr := range ports.For(t, options.Nodes) {
		id := fmt.Sprintf("n%d", i+1)
		redis[id], options.NodeFlags[id] = addr, []string{"--redis-addr", addr}
	}
	c := process.StartWith(t, programs, options)
	s := &scene{t: t, c: c, policy: filepath.Join(t.TempDir(), "policy.yaml"), redis: redis, first: map[*line]bool{}}
	s.bind(identities)
	c.AwaitCaughtUp()
	s.owner = open(t, c.NewClient(), tenantTTL)
	for _, id := range c.IDs() {
		s.innocent = append(s.innocent, enter(t, c, s.owner, "ivy", id, s.redis[id], credential{certificate: "ivy"}))
	}
	for _, v := range s.innocent {
		for _, l := range v.open() {
			s.first[l] = true
		}
	}
	for _, w := range withdrawals {
		s.play(w)
	}
	s.qlock("session", "close", "--identity", "bea", "--reason", "test")
	c.Await("the end of the sessions", process.WaitTimeout+tenantTTL, func(ctx context.Context) error {
		for _, w := range withdrawals {
			if locks := s.heldBy(ctx, w.name); len(locks) > 0 {
				return fmt.Errorf("held: %v", locks)
			}
		}
		return nil
	})
	s.undisturbed()
}

// play lets a tenant enter on every node, and withdraws its credential or rights.
func (s *scene) play(w withdrawal) {
	s.t.Helper()
	with := credential{certificate: w.name}
	if w.token {
		with = credential{token: s.createToken(w.name)}
		s.c.AwaitCaughtUp() // until then, a node does not know the token
	}
	var tenants []*tenant
	for _, id := range s.c.IDs() {
		tenants = append(tenants, enter(s.t, s.c, s.owner, w.name, id, s.redis[id], with))
	}
	connected := map[*tenant][]*line{}
	for _, v := range tenants {
		if connected[v] = v.open(); len(connected[v]) != connections {
			s.t.Fatalf("%v has %d connections, want %d", v, len(connected[v]), connections)
		}
	}
	acknowledged := w.withdraw(s, tenants)
	deadline := time.Now().Add(process.WaitTimeout)
	for _, v := range tenants {
		for _, l := range connected[v] {
			s.ends(v, l, acknowledged[v.node], deadline)
		}
		s.answeredWith(v, w.codes)
		v.queued(0)
	}
	s.standing(w)
	s.refused(w, with)
	s.unseen(w, tenants)
	s.undisturbed()
}

// ends waits for the end of a connection and checks how long it took.
func (s *scene) ends(v *tenant, l *line, since, deadline time.Time) {
	s.t.Helper()
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	select {
	case <-l.gone:
	case <-late.C:
	}
	if l.isOpen() {
		s.t.Errorf("%v: the %s is still open", v, l.what)
		return
	}
	took := l.end.Sub(since)
	s.t.Logf("%v: the %s ended after %v", v, l.what, took.Round(time.Millisecond))
	if took > withdrawalBound() {
		s.t.Errorf("%v: the %s ended after %v", v, l.what, took)
	}
}

// answeredWith checks how the running requests of a tenant ended. A watch may end without a final message.
func (s *scene) answeredWith(v *tenant, codes []connect.Code) {
	s.t.Helper()
	for what, ended := range map[string]chan error{"waiting acquire": v.answered, "HTTP watch": v.watched} {
		select {
		case err := <-ended:
			if what == "waiting acquire" && !slices.Contains(codes, connect.CodeOf(err)) {
				s.t.Errorf("%v: the %s ended with %v, want one of %v", v, what, err, codes)
			}
		case <-time.After(process.WaitTimeout):
			s.t.Errorf("%v: the %s goes on", v, what)
		}
	}
}

// standing checks that the locks of the tenants are still held, or that none is if the sessions were closed.
func (s *scene) standing(w withdrawal) {
	s.t.Helper()
	want := len(s.c.IDs())
	if w.closes {
		want = 0
		s.gone(w)
	}
	if held := s.heldBy(s.t.Context(), w.name); len(held) != want {
		s.t.Errorf("%s holds %v, want %d locks", w.name, held, want)
	}
}

// gone waits until no node shows a session of the tenants.
func (s *scene) gone(w withdrawal) {
	s.t.Helper()
	for _, id := range s.c.IDs() {
		node := wirecall.Of(s.c.NewClient(id))
		s.c.Await("the end of the sessions at "+id, process.WaitTimeout, func(ctx context.Context) error {
			found, err := node.ListSessions(ctx, &wire.ListSessionsRequest{Stale: true})
			for _, one := range found.GetSessions() {
				if one.GetIdentity() == w.name {
					err = fmt.Errorf("%s has session %d", w.name, one.GetSessionId())
				}
			}
			return err
		})
	}
}

// refused checks that every node refuses new connections, and says why, or that the identity has no role any more.
func (s *scene) refused(w withdrawal, with credential) {
	s.t.Helper()
	args := []string{"whoami"}
	if with.token != "" {
		path := filepath.Join(s.t.TempDir(), "token")
		if err := os.WriteFile(path, []byte(with.token), 0o600); err != nil {
			s.t.Fatal(err)
		}
		args = []string{"--auth-token-file", path, "whoami"}
	}
	for _, id := range s.c.IDs() {
		out, err := s.c.Qlock(s.t.Context(), with.certificate, []string{id}, args...)
		if w.refusal == "" {
			if err != nil || !strings.Contains(out, "roles: -\n") {
				s.t.Errorf("%s at %s: qlock whoami says %q, %v; want no roles", w.name, id, out, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), w.refusal) {
			s.t.Errorf("%s at %s: qlock whoami says %q, %v; want %q", w.name, id, out, err, w.refusal)
		}
	}
}

// unseen checks that the watches of others show a new event, and those of the tenants do not.
func (s *scene) unseen(w withdrawal, tenants []*tenant) {
	s.t.Helper()
	event := "seen/after-" + w.name
	if err := s.owner.Do(s.t.Context(), event, func(context.Context, uint64) error { return nil }); err != nil {
		s.t.Fatal(err)
	}
	s.c.Await("the event "+event, process.WaitTimeout, func(context.Context) error {
		for _, v := range s.innocent {
			if _, all := v.sees(event); !all {
				return fmt.Errorf("a watch of %v has not shown it", v)
			}
		}
		return nil
	})
	for _, v := range tenants {
		if some, _ := v.sees(event); some {
			s.t.Errorf("a watch of %v shows what happened after the withdrawal", v)
		}
	}
}

// undisturbed checks that the innocent have the connections that they opened, their sessions and their locks.
func (s *scene) undisturbed() {
	s.t.Helper()
	for l := range s.first {
		if !l.isOpen() {
			s.t.Errorf("ivy: %s has ended", l.what)
		}
	}
	for _, v := range s.innocent {
		if len(v.open()) != connections || v.session.Err() != nil || v.hold.Context().Err() != nil {
			s.t.Errorf("%v: %d connections, want %d; session %v, lock %v", v, len(v.open()), connections, v.session.Err(), context.Cause(v.hold.Context()))
		}
		select {
		case err := <-v.answered:
			s.t.Errorf("%v: its acquire was answered: %v", v, err)
		case err := <-v.watched:
			s.t.Errorf("%v: its watch has ended: %v", v, err)
		default:
		}
	}
}

// heldBy returns the locks that the sessions of a tenant hold.
func (s *scene) heldBy(ctx context.Context, name string) (held []string) {
	s.t.Helper()
	locks, err := wirecall.Of(s.c.Client()).ListLocks(ctx, &wire.ListLocksRequest{Prefix: "held/" + name + "/"})
	if err != nil {
		s.t.Error(err)
	}
	for _, l := range locks.GetLocks() {
		held = append(held, l.GetName())
	}
	return held
}

// qlock runs qlock as the operator.
func (s *scene) qlock(args ...string) string {
	s.t.Helper()
	out, err := s.c.Qlock(s.t.Context(), "op", nil, args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// bind applies a policy in which these identities may use all locks.
func (s *scene) bind(names []string, flags ...string) {
	s.t.Helper()
	text := "bindings:\n  - identity: op\n    roles: [admin]\n"
	for _, name := range names {
		text += "  - identity: " + name + "\n    roles: [user]\n"
	}
	if err := os.WriteFile(s.policy, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.qlock(append([]string{"policy", "apply", s.policy, "--yes", "--reason", "test"}, flags...)...)
}

func (s *scene) createToken(name string) string {
	s.t.Helper()
	return strings.TrimSpace(s.qlock("token", "create", name, "--reason", "test"))
}

// now returns the present moment for all nodes: the cluster has acknowledged a change.
func (s *scene) now() map[string]time.Time {
	at, now := map[string]time.Time{}, time.Now()
	for _, id := range s.c.IDs() {
		at[id] = now
	}
	return at
}

func (s *scene) revokeToken(tenants []*tenant) map[string]time.Time {
	return s.revoke(tenants)
}

func (s *scene) revokeTokenAndClose(tenants []*tenant) map[string]time.Time {
	return s.revoke(tenants, "--close-sessions")
}

func (s *scene) revoke(tenants []*tenant, flags ...string) map[string]time.Time {
	s.t.Helper()
	sum, err := identity.HashToken(tenants[0].with.token)
	if err != nil {
		s.t.Fatal(err)
	}
	s.qlock(append([]string{"token", "revoke", identity.TokenID(sum), "--reason", "test"}, flags...)...)
	return s.now()
}

func (s *scene) unbind(tenants []*tenant) map[string]time.Time { return s.rebind(tenants) }

func (s *scene) unbindAndClose(tenants []*tenant) map[string]time.Time {
	return s.rebind(tenants, "--close-sessions")
}

// rebind applies the policy without the tenants.
func (s *scene) rebind(tenants []*tenant, flags ...string) map[string]time.Time {
	s.t.Helper()
	s.bind(slices.DeleteFunc(slices.Clone(identities), func(name string) bool { return name == tenants[0].name }), flags...)
	return s.now()
}

// revokeCertificate adds the certificate to the list and copies the list from node to node. The connections of a node
// stay until it has the list.
func (s *scene) revokeCertificate(tenants []*tenant) map[string]time.Time {
	s.t.Helper()
	s.qlock("tls", "revoke", tenants[0].name, "--dir", s.c.Certificates())
	at := map[string]time.Time{}
	for _, v := range tenants {
		if len(v.open()) != connections {
			s.t.Errorf("%v: connections have ended before the node has the list", v)
		}
		at[v.node] = s.c.CopyCRL(v.node)
	}
	return at
}

// revokeCertificateAndClose closes the sessions when all nodes have the list.
func (s *scene) revokeCertificateAndClose(tenants []*tenant) map[string]time.Time {
	s.t.Helper()
	at := s.revokeCertificate(tenants)
	s.qlock("tls", "revoke", tenants[0].name, "--dir", s.c.Certificates(), "--close-sessions", "--reason", "test")
	return at
}
