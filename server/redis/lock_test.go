package redis

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestLock checks the replies of QL.LOCK.
func TestLock(t *testing.T) {
	p := serve(t, nil)
	c := dial(t, p)
	dialogue{
		{"CLIENT SETNAME worker", ok}, {"QL.LOCK k v PX 50 WAIT 0", "$3\r\n101\r\n"}, {"QL.LOCK k v WAIT 1 PX 50", null}, {"QL.TOKEN k v", "$3\r\n101\r\n"},
		{"QL.LOCK k v PX 50 WAIT -1", "-ERR timeout is negative\r\n"}, {"QL.LOCK k v PX 0 WAIT 1", "-ERR invalid expire time in 'ql.lock' command\r\n"},
		{"QL.LOCK k v PX 50 PX 50", "-ERR syntax error\r\n"}, {"QL.LOCK k v WAIT 5 WAIT 5", "-ERR syntax error\r\n"}, {"QL.LOCK k v EX 5 WAIT 5", "-ERR syntax error\r\n"},
		{"QL.LOCK k  PX 50 WAIT 0", "-ERR the value is empty…"}, {"QL.LOCK k v PX 5 WAIT 0", "-ERR …"},
	}.run(t, c)
	if got := p.service.keys["k"].GetClient(); got.GetName() != "worker" || got.GetAddress() != c.LocalAddr().String() {
		t.Errorf("the holder is %v", got)
	}
}

// TestLockWaits checks that a wait ends with the release of the lock, and that commands which arrive meanwhile come
// after it.
func TestLockWaits(t *testing.T) {
	const ahead = 128 << 10
	p := serve(t, nil)
	holder, c := dial(t, p), dial(t, p)
	holder.do("SET k v NX PX 50")
	c.send(encoded("PING") + encoded("QL.LOCK", "k", "w", "PX", "50", "WAIT", "60000"))
	if got := c.reply(); got != "+PONG\r\n" {
		t.Errorf("before the wait: %q", got)
	}
	eventually(t, "the wait", func() bool { return p.service.waiting() == 1 })
	c.send(encoded("ECHO", strings.Repeat("x", ahead)))
	dialogue{{"DELIFEQ k v", one}}.run(t, holder)
	if got := c.reply(); got != "$3\r\n102\r\n" {
		t.Errorf("the token is %q", got)
	}
	if got := c.reply(); len(got) < ahead {
		t.Errorf("after the wait: %q", got)
	}
	dialogue{{"QL.TOKEN k w", "$3\r\n102\r\n"}}.run(t, c)
}

// TestLockIsCancelled checks that a wait ends with its connection, whoever ends that.
func TestLockIsCancelled(t *testing.T) {
	for name, end := range map[string]func(p *port, c *peer){
		"by the client": func(_ *port, c *peer) { _ = c.Close() },
		"by the node":   func(p *port, _ *peer) { p.connections()[0].end(errEnded) },
		"by shutdown":   func(p *port, _ *peer) { _ = p.Close(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			p := serve(t, nil)
			p.service.hold("k", &wire.KeyState{Key: true, Identity: "them"})
			c := dial(t, p)
			c.send(encoded("QL.LOCK", "k", "w", "PX", "50", "WAIT", "60000"))
			eventually(t, "the wait", func() bool { return p.service.waiting() == 1 })
			end(p, c)
			eventually(t, "its end", func() bool { return p.service.waiting() == 0 && p.Connections() == 0 })
		})
	}
}

// TestLockReadsAhead checks that the end of a client is not missed behind what it has sent after a command that waits.
func TestLockReadsAhead(t *testing.T) {
	p := serve(t, nil)
	p.service.hold("k", &wire.KeyState{Key: true, Identity: "them"})
	c := dial(t, p)
	c.send(encoded("QL.LOCK", "k", "w", "PX", "50", "WAIT", "3600000"))
	eventually(t, "the wait", func() bool { return p.service.waiting() == 1 })
	_, _ = c.Write([]byte(strings.Repeat("PING\r\n", DefaultLimits().Command.MaxBytes/3)))
	_ = c.Close()
	eventually(t, "its end", func() bool { return p.service.waiting() == 0 && p.Connections() == 0 })
}

// TestWaitsAreShared checks that an identity leaves others as many waits as it has.
func TestWaitsAreShared(t *testing.T) {
	p, cluster := governed(t, func(c *Config) {
		c.Quotas = quota.New(c.Source, 1)
		c.Limits.MaxWaits = 3
	})
	p.service.hold(rights.Lock, &wire.KeyState{Key: true, Identity: "them"})
	wait := func(role string) *peer {
		c := dial(t, p)
		c.do("AUTH " + cluster.Tokens[role])
		c.send(encoded("QL.LOCK", rights.Lock, "w", "PX", "50", "WAIT", "60000"))
		return c
	}
	wait("user")
	eventually(t, "the first wait", func() bool { return p.service.waiting() == 1 })
	wait("user")
	eventually(t, "the second wait", func() bool { return p.service.waiting() == 2 })
	if got := wait("user").reply(); !strings.HasPrefix(got, "-QUOTA waits of QL.LOCK: ") {
		t.Errorf("beyond the share: %q", got)
	}
	wait("admin")
	eventually(t, "the wait of another identity", func() bool { return p.service.waiting() == 3 })
}

// TestWho checks what QL.WHO replies in both versions of the protocol.
func TestWho(t *testing.T) {
	p := serve(t, nil)
	p.service.hold("db2/k", &wire.KeyState{Key: true, Identity: "them", Token: 7, RemainingMs: 50, Client: &wire.ClientInfo{Name: "n", Address: "a:1"}})
	p.service.hold("native", &wire.KeyState{Identity: "us", Token: 9, Client: &wire.ClientInfo{Name: "sdk", Address: "b:2"}})
	c := dial(t, p)
	const fields = "$4\r\nlock\r\n$5\r\ndb2/k\r\n$4\r\nkind\r\n$3\r\nkey\r\n$8\r\nidentity\r\n$4\r\nthem\r\n$6\r\nclient\r\n$1\r\nn\r\n$7\r\naddress\r\n$3\r\na:1\r\n$5\r\ntoken\r\n$1\r\n7\r\n$12\r\nremaining-ms\r\n:50\r\n"
	const native = "$4\r\nlock\r\n$6\r\nnative\r\n$4\r\nkind\r\n$6\r\nnative\r\n$8\r\nidentity\r\n$2\r\nus\r\n$6\r\nclient\r\n$3\r\nsdk\r\n$7\r\naddress\r\n$3\r\nb:2\r\n$5\r\ntoken\r\n$1\r\n9\r\n"
	dialogue{
		{"QL.WHO native", "*12\r\n" + native}, {"QL.WHO k", null}, {"SELECT 2", ok}, {"QL.WHO k", "*14\r\n" + fields},
		{"HELLO 3", "%7\r\n…"}, {"QL.WHO k", "%7\r\n" + fields}, {"QL.WHO none", "_\r\n"}, {"SELECT 0", ok}, {"QL.WHO native", "%6\r\n" + native},
	}.run(t, c)
}

// TestRepliesBeforeAWait checks that replies which are sent before a wait are not sent again, whatever its reply is.
func TestRepliesBeforeAWait(t *testing.T) {
	c := dial(t, serve(t, nil))
	before, wait := encoded("ECHO", "a"), encoded("QL.LOCK", "k", "v", "PX", "5", "WAIT", "0")
	c.send(before + wait + encoded("CLIENT", "REPLY", "SKIP") + wait + before + encoded("QUIT"))
	const refused = "-ERR ttl_ms: 10 to 86400000\r\n"
	if got, want := c.ended(), "$1\r\na\r\n"+refused+"$1\r\na\r\n"+ok; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
