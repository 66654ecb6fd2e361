package redis

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/server/internal/access"
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
