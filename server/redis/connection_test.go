package redis

import (
	"fmt"
	"strings"
	"testing"
)

// TestConnectionCommands checks the commands about the connection and the node.
func TestConnectionCommands(t *testing.T) {
	for name, d := range map[string]dialogue{
		"ping":   {{"PING", "+PONG\r\n"}, {"ping a", "$1\r\na\r\n"}, {"PING a b", "-ERR wrong number of arguments for 'ping' command\r\n"}, {"ECHO a", "$1\r\na\r\n"}},
		"names":  {{"CLIENT GETNAME", null}, {"CLIENT SETNAME a", ok}, {"CLIENT GETNAME", "$1\r\na\r\n"}, {"CLIENT SETNAME a\nb", "-ERR Client names cannot contain spaces…"}, {"CLIENT SETNAME", "-ERR wrong number of arguments for 'client|setname' command\r\n"}},
		"client": {{"CLIENT ID", one}, {"CLIENT SETINFO LIB-NAME x", ok}, {"CLIENT NO-EVICT on", ok}, {"CLIENT NO-TOUCH on", ok}, {"CLIENT TRACKING on", "-ERR CLIENT TRACKING without OPTIN is not supported…"}, {"CLIENT TRACKING on OPTIN", ok}, {"CLIENT TRACKING off", ok}, {"CLIENT TRACKING on OPTIN BCAST", "-ERR CLIENT TRACKING without OPTIN is not supported…"}, {"CLIENT CACHING yes", "-ERR CLIENT CACHING is not supported…"}, {"CLIENT KILL x", "-ERR CLIENT KILL is not supported…"}},
		"hello": {
			{"HELLO", "*14\r\n$6\r\nserver\r\n$10\r\nquorumlock\r\n$7\r\nversion\r\n$5\r\n7.2.0\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"},
			{"HELLO 3 SETNAME a", "%7\r\n$6\r\nserver\r\n$10\r\nquorumlock\r\n$7\r\nversion\r\n$5\r\n7.2.0\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"},
			{"CLIENT GETNAME", "$1\r\na\r\n"}, {"GET k", "_\r\n"}, {"RESET", "+RESET\r\n"}, {"GET k", null}, {"CLIENT GETNAME", null},
			{"HELLO x", "-ERR Protocol version is not an integer or out of range\r\n"}, {"HELLO 1", "-NOPROTO unsupported protocol version\r\n"}, {"HELLO 2 X", "-ERR Syntax error in HELLO option 'X'\r\n"}, {"HELLO 2 AUTH a", "-ERR Syntax error…"},
		},
		"nil":   {{"WATCH k", ok}, {"HELLO 3", "%7\r\n…"}, {"SET k v NX PX 50", "+OK\r\n"}, {"MULTI", ok}, {"DEL k", queue}, {"EXEC", "_\r\n"}},
		"wait":  {{"WAIT 1 100", ":2\r\n"}, {"WAIT x 1", "-ERR value is not an integer…"}, {"WAIT 1 -1", "-ERR timeout is negative\r\n"}},
		"role":  {{"ROLE", "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"}},
		"reset": {{"SELECT 3", ok}, {"SET k v NX PX 50", ok}, {"MULTI", ok}, {"RESET", "+RESET\r\n"}, {"EXISTS k", zero}},
		"command": {
			{"COMMAND COUNT", fmt.Sprintf(":%d\r\n", len(table))}, {"COMMAND INFO get nope", "*2\r\n*10\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n*0\r\n*0\r\n*-1\r\n"},
			{"COMMAND LIST", fmt.Sprintf("*%d\r\n…", len(table))}, {"COMMAND", fmt.Sprintf("*%d\r\n*10\r\n…", len(table))}, {"COMMAND DOCS echo nope", "*2\r\n$4\r\necho\r\n*6\r\n$7\r\nsummary\r\n…"}, {"COMMAND GETKEYS get k", "-ERR COMMAND GETKEYS is not supported…"},
			{"HELLO 3", "%7\r\n…"}, {"COMMAND DOCS echo", "%1\r\n$4\r\necho\r\n%3\r\n…"}, {"COMMAND INFO get", "*1\r\n*10\r\n$3\r\nget\r\n:2\r\n~2\r\n…"},
		},
	} {
		t.Run(name, func(t *testing.T) { d.run(t, dial(t, serve(t, nil))) })
	}
}

// TestInfo checks what clients read in INFO, and that the server does not pass for Redis.
func TestInfo(t *testing.T) {
	c := dial(t, serve(t, nil))
	all := c.do("INFO")
	for _, line := range []string{"redis_version:7.", "server_name:quorumlock", "not Redis", "role:master", "loading:0", "quorumlock_leader:n1", "quorumlock_version:v1"} {
		if !strings.Contains(all, line) {
			t.Errorf("INFO lacks %q:\n%s", line, all)
		}
	}
	if got := c.do("INFO replication"); !strings.Contains(got, "role:master") || strings.Contains(got, "redis_version") {
		t.Errorf("INFO replication: %q", got)
	}
	if got := c.do("INFO nope"); got != "$0\r\n\r\n" {
		t.Errorf("INFO nope: %q", got)
	}
	if got := c.do("CLIENT INFO"); !strings.Contains(got, "addr="+c.LocalAddr().String()) || !strings.Contains(got, "user=anonymous") {
		t.Errorf("CLIENT INFO: %q", got)
	}
}

// TestReplyModes checks that CLIENT REPLY leaves out the replies that it should.
func TestReplyModes(t *testing.T) {
	c := dial(t, serve(t, nil))
	for _, words := range []string{"CLIENT REPLY SKIP", "ECHO a", "ECHO b", "CLIENT REPLY OFF", "ECHO c", "NOPE", "CLIENT REPLY SKIP", "ECHO d", "CLIENT REPLY ON", "ECHO e"} {
		c.send(encoded(strings.Split(words, " ")...))
	}
	for _, want := range []string{"$1\r\nb\r\n", ok, "$1\r\ne\r\n"} {
		if got := c.reply(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestQuit checks that QUIT answers what came before it, and nothing after it.
func TestQuit(t *testing.T) {
	c := dial(t, serve(t, nil))
	c.send(encoded("ECHO", "a") + encoded("QUIT") + encoded("ECHO", "b"))
	if got := c.ended(); got != "$1\r\na\r\n+OK\r\n" {
		t.Errorf("%q", got)
	}
}
