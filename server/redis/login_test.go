package redis

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// governed serves a cluster with the policy of package rights.
func governed(t *testing.T, change func(*Config)) (*port, *rights.Cluster) {
	p, c := serve(t, change), rights.New(t)
	p.service.mu.Lock()
	p.service.machine = c.Machine
	p.service.mu.Unlock()
	return p, c
}

// TestAuthenticate checks who is let in with what, and that a wrong token is reported.
func TestAuthenticate(t *testing.T) {
	denials := make(chan access.Denial, 100)
	p, cluster := governed(t, func(c *Config) { c.Denials = func(d access.Denial) { denials <- d } })
	user := cluster.Tokens["user"]
	for name, d := range map[string]dialogue{
		"none":         {{"PING", "-NOAUTH Authentication required.\r\n"}, {"GET k", "-NOAUTH Authentication required.\r\n"}},
		"token":        {{"AUTH " + user, ok}, {"PING", "+PONG\r\n"}, {"SET team/a v NX PX 50", ok}},
		"with default": {{"AUTH default " + user, ok}, {"CLIENT INFO", "$"}},
		"with user":    {{"AUTH user " + user, ok}},
		"another user": {{"AUTH admin " + user, "-WRONGPASS the token belongs to another identity…"}, {"PING", "-NOAUTH …"}},
		"wrong":        {{"AUTH ql_x", "-WRONGPASS not authenticated: …"}, {"AUTH " + user, ok}},
		"hello":        {{"HELLO 2", "-NOAUTH HELLO…"}, {"HELLO 2 AUTH default " + user, "*14\r\n…"}, {"HELLO 4", "-NOPROTO …"}},
		"switch":       {{"AUTH " + user, ok}, {"AUTH " + cluster.Tokens["admin"], ok}, {"AUTH ql_x", "-WRONGPASS …"}, {"PING", "+PONG\r\n"}},
		"reset":        {{"AUTH " + user, ok}, {"RESET", "+RESET\r\n"}, {"PING", "-NOAUTH …"}},
		"arity":        {{"AUTH a b c", "-ERR syntax error\r\n"}, {"AUTH", "-ERR wrong number of arguments for 'auth' command\r\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, p)
			for _, step := range d {
				if got := c.do(step.words); !strings.HasPrefix(got, strings.TrimSuffix(step.reply, "…")) {
					t.Errorf("%s: %q, want %q", step.words, got, step.reply)
				}
			}
		})
	}
	if len(denials) < 4 {
		t.Errorf("%d denials were reported", len(denials))
	}
}

// far is a connection that comes from another machine.
type far struct{ net.Conn }

func (far) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }

// TestPlaintextTokens checks that a token that others may have read proves nothing, and that its refusal is recorded.
func TestPlaintextTokens(t *testing.T) {
	var denials []access.Denial
	p, cluster := governed(t, func(c *Config) { c.Denials = func(d access.Denial) { denials = append(denials, d) } })
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	for _, words := range []string{"AUTH TOKEN", "AUTH admin TOKEN", "HELLO 3 AUTH admin TOKEN"} {
		c := newConn(p.Server, far{ours}, p.handshakes.Begin(ours))
		words = strings.ReplaceAll(words, "TOKEN", cluster.Tokens["admin"])
		_ = c.execute(bytes.Fields([]byte(words)))
		_ = c.execute([][]byte{[]byte("PING")})
		if got := string(c.out.Bytes()); !strings.HasPrefix(got, "-WRONGPASS ") || !strings.Contains(got, "-NOAUTH ") || c.login != nil {
			t.Errorf("%s: %q", words, got)
		}
		c.place.End()
	}
	if len(denials) == 0 || !strings.Contains(denials[0].Message, "over TLS or from loopback") || !strings.HasPrefix(denials[0].Caller.GetAddress(), "192.0.2.1:") {
		t.Errorf("the denials are %v", denials)
	}
}

// TestReset checks that a connection that gives its caller up counts as one without a caller again, for a while.
func TestReset(t *testing.T) {
	p, cluster := governed(t, func(c *Config) { c.Limits.HandshakeTimeout = 500 * time.Millisecond })
	c := dial(t, p)
	c.do("AUTH " + cluster.Tokens["user"])
	if n := p.handshakes.Len(); n != 0 {
		t.Errorf("%d connections without a caller", n)
	}
	c.do("RESET")
	if n := p.handshakes.Len(); n != 1 || p.Connections() != 0 {
		t.Errorf("after RESET: %d connections without a caller, %d with one", n, p.Connections())
	}
	if got := c.ended(); got != "" {
		t.Errorf("%q", got)
	}
	eventually(t, "nothing is left", func() bool { return p.handshakes.Len() == 0 })
}

// TestGuessing checks that a connection is closed after a few wrong tokens.
func TestGuessing(t *testing.T) {
	p, _ := governed(t, nil)
	c := dial(t, p)
	c.send(strings.Repeat(encoded("AUTH", "ql_x"), 10))
	if got := strings.Count(c.ended(), "-WRONGPASS"); got != maxFailures {
		t.Errorf("%d tokens were looked up, want %d", got, maxFailures)
	}
}

// TestRights checks what each role may do with a lock that somebody else holds.
func TestRights(t *testing.T) {
	p, cluster := governed(t, nil)
	_, revision := cluster.Access().Policy()
	policy := rights.Policy() // with the right lock alone
	policy.Roles = append(policy.Roles, &wire.Role{Name: "locker", Locks: []*wire.LockRule{{Prefix: "team/", Verbs: []wire.Verb{wire.Verb_LOCK}}}})
	policy.Bindings[2].Roles = []string{"locker"}
	cluster.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "admin"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: policy, ExpectedRevision: revision, Reason: "test"}}})
	p.service.hold(rights.Lock, &wire.KeyState{Key: true, Identity: "them", Value: []byte("v"), RemainingMs: 5000})
	const denied = "-NOPERM …"
	replies := map[string]map[string]string{
		"reader":   {"GET": "$1\r\nv\r\n", "EXISTS": one, "PTTL": ":5000\r\n", "SET": denied, "QL.WHO": "*14…", "QL.LOCK": denied, "PEXPIRE": denied, "DELIFEQ": zero},
		"user":     {"GET": denied, "EXISTS": one, "PTTL": ":5000\r\n", "SET": null, "QL.WHO": denied, "QL.LOCK": null, "PEXPIRE": zero, "DELIFEQ": zero},
		"other":    {"GET": denied, "EXISTS": denied, "PTTL": denied, "SET": denied, "QL.WHO": denied, "QL.LOCK": denied, "PEXPIRE": denied, "DELIFEQ": denied},
		"operator": {"GET": "$1\r\nv\r\n", "SET": denied, "DELIFEQ": zero},
	}
	more := map[string]string{"SET": " v NX PX 50", "QL.LOCK": " v PX 50 WAIT 0", "PEXPIRE": " 50", "DELIFEQ": " w"}
	for role, want := range replies {
		c := dial(t, p)
		c.do("AUTH " + cluster.Tokens[role])
		for name, reply := range want {
			if got := c.do(name + " " + rights.Lock + more[name]); !strings.HasPrefix(got, strings.TrimSuffix(reply, "…")) {
				t.Errorf("%s sends %s: %q, want %q", role, name, got, reply)
			}
		}
	}
}

// TestRequestContexts verifies that requests of a login share a context, and that each of them has the full time.
func TestRequestContexts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := &login{Context: t.Context(), leave: func() {}}
		first := l.begin(time.Second)
		for range 3 {
			time.Sleep(time.Second - 1)
			l.finish()
			time.Sleep(time.Hour)
			if again := l.begin(time.Second); again != first || again.Err() != nil {
				t.Fatalf("another context, or %v", context.Cause(again))
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if err := context.Cause(first); !errors.Is(err, errTooLong) {
			t.Errorf("a request that takes too long ends with %v", err)
		}
		l.finish()
		second := l.begin(time.Second)
		if second.Err() != nil {
			t.Errorf("the next request begins with %v", context.Cause(second))
		}
		l.limit.Stop() // as if it fired while the request ends
		if l.finish(); second.Err() == nil {
			t.Error("a timer that fires as its request ends may end the next one")
		}
		third := l.begin(time.Second)
		if l.end(); third.Err() == nil {
			t.Error("the context of a login that has ended goes on")
		}
	})
}
