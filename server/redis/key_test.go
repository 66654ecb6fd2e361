package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// dialogue is commands with the replies expected, as they come.
type dialogue []struct{ words, reply string }

func (d dialogue) run(t *testing.T, c *peer) {
	t.Helper()
	for _, step := range d {
		got := c.do(step.words)
		if want := strings.TrimSuffix(step.reply, "…"); want != step.reply && strings.HasPrefix(got, want) {
			continue
		}
		if got != step.reply {
			t.Errorf("%s: %q, want %q", step.words, got, step.reply)
		}
	}
}

const (
	ok    = "+OK\r\n"
	null  = "$-1\r\n"
	zero  = ":0\r\n"
	one   = ":1\r\n"
	queue = "+QUEUED\r\n"
)

// TestKeys checks the replies to the commands on keys that are free, the caller's, somebody else's and native.
func TestKeys(t *testing.T) {
	for name, d := range map[string]dialogue{
		"acquire": {
			{"SET k v NX PX 10000", ok}, {"SET k v NX PX 10000", null}, {"SET k w PX 10000 NX", null}, {"GET k", "$1\r\nv\r\n"},
			{"EXISTS k k none", ":2\r\n"}, {"PTTL k", ":10000\r\n"}, {"TTL k", ":10\r\n"},
		},
		"acquire or extend": {{"SET k v EX 5", ok}, {"SET k v EX 7", ok}, {"PTTL k", ":7000\r\n"}, {"SET k w EX 5", "-LOCKED …"}},
		"extend":            {{"SET k v XX PX 50", null}, {"SET k v NX PX 50", ok}, {"SET k v XX PX 70", ok}, {"PTTL k", ":70\r\n"}, {"SET k w XX PX 70", "-LOCKED …"}},
		"set with get": {
			{"SET k v NX GET PX 50", null}, {"SET k w NX GET PX 50", "$1\r\nv\r\n"}, {"SET k v GET PX 50", "$1\r\nv\r\n"},
			{"SET j v GET PX 50", null}, {"SET i v XX GET PX 50", null}, {"SET k v XX GET PX 60", "$1\r\nv\r\n"},
		},
		"without ttl": {{"SET k v NX", "-ERR a lock needs a TTL…"}, {"SETNX k v", "-ERR a lock needs a TTL…"}, {"SET k v", "-ERR a lock needs a TTL…"}},
		"release": {
			{"DELIFEQ k v", zero}, {"SET k v NX PX 50", ok}, {"DELIFEQ k ", "-ERR the value is empty…"}, {"DELEX k IFEQ ", "-ERR the value is empty…"}, {"DELIFEQ k w", zero}, {"DELIFEQ k v", one}, {"GET k", null},
			{"SET k v NX PX 50", ok}, {"DELEX k IFEQ w", zero}, {"DELEX k ifeq v", one}, {"DELEX k", zero}, {"DELEX k IFNE v", "-ERR DELEX IFNE is not supported…"},
			{"DELEX k IFEQ", "-ERR wrong number of arguments for 'delex' command\r\n"},
		},
		"delete":   {{"SET k v NX PX 50", ok}, {"SET j v NX PX 50", ok}, {"DEL k k j none", ":2\r\n"}, {"UNLINK k", zero}},
		"expire":   {{"PEXPIRE k 70", zero}, {"SET k v NX PX 50", ok}, {"PEXPIRE k 70", one}, {"EXPIRE k 7", one}, {"TTL k", ":7\r\n"}, {"EXPIRE k 7 NX", "-ERR EXPIRE with NX is not supported…"}},
		"others":   {{"SET theirs v NX PX 50", null}, {"SET theirs theirs PX 50", "-LOCKED …"}, {"PEXPIRE theirs 70", zero}, {"DELIFEQ theirs theirs", zero}, {"DEL theirs", "-NOPERM …"}},
		"native":   {{"GET native", "$0\r\n\r\n"}, {"PTTL native", ":-1\r\n"}, {"TTL native", ":-1\r\n"}, {"EXISTS native", one}, {"SET native v NX PX 50", null}},
		"no key":   {{"PTTL k", ":-2\r\n"}, {"TTL k", ":-2\r\n"}, {"GET k", null}, {"EXISTS k", zero}},
		"token":    {{"QL.TOKEN k v", null}, {"SET k v NX PX 50", ok}, {"QL.TOKEN k v", ":103\r\n"}, {"QL.TOKEN k w", null}, {"QL.TOKEN theirs theirs", null}},
		"database": {{"SET k v NX PX 50", ok}, {"SELECT 3", ok}, {"EXISTS k", zero}, {"SET k w NX PX 60", ok}, {"SELECT 0", ok}, {"GET k", "$1\r\nv\r\n"}, {"SELECT 16", "-ERR DB index is out of range\r\n"}, {"SELECT x", "-ERR value is not an integer or out of range\r\n"}},
		"mistakes": {
			{"SET k", "-ERR wrong number of arguments for 'set' command\r\n"}, {"set k v PX", "-ERR syntax error\r\n"}, {"SET k v NX XX PX 5", "-ERR syntax error\r\n"},
			{"SET k v PX x", "-ERR value is not an integer or out of range\r\n"}, {"SET k v PX 0", "-ERR invalid expire time in 'set' command\r\n"},
			{"SET k v EX -1", "-ERR invalid expire time in 'set' command\r\n"}, {"SET k v PX 9", "-ERR ttl_ms: 10 to 86400000\r\n"}, {"SET k v EX 86401", "-ERR ttl_ms…"},
			{"SET k v PX 5000000000000", "-ERR ttl_ms…"}, {"SET k v PX 99999999999999999999", "-ERR value is not an integer…"}, {"SET k v PX 5 EX 5", "-ERR syntax error\r\n"},
			{"SET k v KEEPTTL", "-ERR SET with KEEPTTL is not supported…"}, {"SET k  NX PX 50", "-ERR the value is empty…"}, {"PEXPIRE k 0", "-ERR invalid expire time in 'pexpire' command\r\n"},
			{"LPUSH k v", "-ERR unknown command 'LPUSH'…"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := serve(t, nil)
			p.service.hold("theirs", &wire.KeyState{Key: true, Identity: "them", Value: []byte("theirs"), RemainingMs: 5000})
			p.service.hold("native", &wire.KeyState{})
			d.run(t, dial(t, p))
		})
	}
}

// TestDefaultTTL checks that the operator can give acquires a TTL.
func TestDefaultTTL(t *testing.T) {
	p := serve(t, func(c *Config) { c.DefaultTTL = 30 * time.Second })
	dialogue{{"SETNX k v", one}, {"SETNX k v", zero}, {"PTTL k", ":30000\r\n"}, {"SET j v NX", ok}, {"TTL j", ":30\r\n"}}.run(t, dial(t, p))
}

// TestForce checks that DEL asks to force only if the operator allows it.
func TestForce(t *testing.T) {
	p := serve(t, func(c *Config) { c.AllowForce = true })
	p.service.hold("theirs", &wire.KeyState{Key: true, Identity: "them"})
	dialogue{{"DEL theirs", one}}.run(t, dial(t, p))
}

// TestSetGetOfAKeyThatIsFreed checks that SET with NX and GET does not reply nil, which means that it has acquired the
// key, if the key was taken and then free.
func TestSetGetOfAKeyThatIsFreed(t *testing.T) {
	p := serve(t, nil)
	p.service.hold("k", &wire.KeyState{Key: true, Identity: "them", Value: []byte("w")})
	p.service.freeBeforeRead(1)
	c := dial(t, p)
	dialogue{{"SET k v NX GET PX 50", null}, {"GET k", "$1\r\nv\r\n"}}.run(t, c)
}
