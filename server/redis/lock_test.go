package redis

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestLock checks the replies of QL.LOCK.
func TestLock(t *testing.T) {
	p := serve(t, nil)
	c := dial(t, p)
	dialogue{
		{"CLIENT SETNAME worker", ok}, {"QL.LOCK k v PX 50 WAIT 0", ":101\r\n"}, {"QL.LOCK k v WAIT 1 PX 50", null}, {"QL.TOKEN k v", ":101\r\n"},
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
	p := serve(t, nil)
	holder, c := dial(t, p), dial(t, p)
	holder.do("SET k v NX PX 50")
	c.send(encoded("PING") + encoded("QL.LOCK", "k", "w", "PX", "50", "WAIT", "60000"))
	if got := c.reply(); got != "+PONG\r\n" {
		t.Errorf("before the wait: %q", got)
	}
	eventually(t, "the wait", func() bool { return p.service.waiting() == 1 })
	c.send(encoded("ECHO", strings.Repeat("x", 2*aheadBytes)))
	dialogue{{"DELIFEQ k v", one}}.run(t, holder)
	if got := c.reply(); got != ":102\r\n" {
		t.Errorf("the token is %q", got)
	}
	if got := c.reply(); len(got) < 2*aheadBytes {
		t.Errorf("after the wait: %q", got)
	}
	dialogue{{"QL.TOKEN k w", ":102\r\n"}}.run(t, c)
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

// TestWho checks what QL.WHO replies in both versions of the protocol.
func TestWho(t *testing.T) {
	p := serve(t, nil)
	p.service.hold("db2/k", &wire.KeyState{Key: true, Identity: "them", Token: 7, RemainingMs: 50, Client: &wire.ClientInfo{Name: "n", Address: "a:1"}})
	p.service.hold("native", &wire.KeyState{})
	c := dial(t, p)
	const fields = "$4\r\nlock\r\n$5\r\ndb2/k\r\n$4\r\nkind\r\n$3\r\nkey\r\n$8\r\nidentity\r\n$4\r\nthem\r\n$6\r\nclient\r\n$1\r\nn\r\n$7\r\naddress\r\n$3\r\na:1\r\n$5\r\ntoken\r\n:7\r\n$12\r\nremaining-ms\r\n:50\r\n"
	const native = "$4\r\nlock\r\n$6\r\nnative\r\n$4\r\nkind\r\n$6\r\nnative\r\n"
	dialogue{
		{"QL.WHO native", "*4\r\n" + native}, {"QL.WHO k", null}, {"SELECT 2", ok}, {"QL.WHO k", "*14\r\n" + fields},
		{"HELLO 3", "%7\r\n…"}, {"QL.WHO k", "%7\r\n" + fields}, {"QL.WHO none", "_\r\n"}, {"SELECT 0", ok}, {"QL.WHO native", "%2\r\n" + native},
	}.run(t, c)
}
