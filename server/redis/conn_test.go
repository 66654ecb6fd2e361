package redis

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/server/internal/keys"
	"github.com/quorumlock/quorumlock/server/redis/resp"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestPipeline checks that the commands of a pipeline are executed in order, in pieces of any size.
func TestPipeline(t *testing.T) {
	c := dial(t, serve(t, nil))
	pipeline := encoded("SET", "k", "v", "NX", "PX", "50") + encoded("GET", "k") + "PING\r\n" + encoded("NOPE") + encoded("DEL", "k")
	for size := 1; size < len(pipeline); size += 13 {
		for rest := pipeline; rest != ""; {
			n := min(size, len(rest))
			c.send(rest[:n])
			rest = rest[n:]
		}
		for _, want := range []string{ok, "$1\r\nv\r\n", "+PONG\r\n", "-ERR unknown command", one} {
			if got := c.reply(); !strings.HasPrefix(got, want) {
				t.Fatalf("in pieces of %d: %q, want %q", size, got, want)
			}
		}
	}
}

// TestOutcomes checks that a client is told to repeat a request only if nothing was executed, and otherwise loses the
// connection without a reply.
func TestOutcomes(t *testing.T) {
	for _, words := range []string{"SET k v NX PX 50", "DEL k", "GET k", "EXISTS k", "WAIT 1 1", "QL.LOCK k v PX 50 WAIT 0"} {
		p := serve(t, nil)
		p.service.failNext(keys.ErrNoLeader, keys.ErrUnknown)
		c := dial(t, p)
		dialogue{{words, "-CLUSTERDOWN …"}}.run(t, c)
		c.send(encoded(strings.Split(words, " ")...))
		if got := c.ended(); got != "" {
			t.Errorf("%s with an unknown outcome: %q", words, got)
		}
	}
}

// TestRefusals checks the code of each kind of refusal by the state machine.
func TestRefusals(t *testing.T) {
	for status, want := range map[wire.Status_Code]string{
		wire.Status_PERMISSION_DENIED:  "NOPERM why",
		wire.Status_RESOURCE_EXHAUSTED: "QUOTA why",
		wire.Status_INVALID_ARGUMENT:   "ERR why",
		wire.Status_UNAVAILABLE:        "ERR why",
		wire.Status_NOT_LEADER:         "CLUSTERDOWN ",
	} {
		err := failure(t.Context(), &keys.RefusedError{Result: &wire.Result{Status: status, Message: "why"}})
		if reply, ok := err.(resp.Error); !ok || !strings.HasPrefix(string(reply), want) {
			t.Errorf("%v: %v, want %s", status, err, want)
		}
	}
	if reply, ok := refusal(&wire.Result{Status: wire.Status_UNCERTAIN}).(resp.Error); ok {
		t.Errorf("an unknown outcome is %s", reply)
	}
}

// TestHostileInput checks that input which is no command ends the connection, with the reason.
func TestHostileInput(t *testing.T) {
	p := serve(t, nil)
	for input, want := range map[string]string{
		"*1000000000\r\n":                         "-ERR Protocol error: invalid multibulk length\r\n",
		"*1\r\n$1000000000\r\n":                   "-ERR Protocol error: invalid bulk length\r\n",
		"*1\r\n:1\r\n":                            "-ERR Protocol error: expected '$', got ':'\r\n",
		strings.Repeat("x", 3000):                 "-ERR Protocol error: too big inline request\r\n",
		"PING\r\n*x\r\n":                          "+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\n\r\nPING":  "",
		"GET / HTTP/1.1\r\nHost: x\r\n\r\nPING\r": "-ERR wrong number of arguments for 'get' command\r\n",
		"\x16\x03\x01\x00\xa5\x01\n":              "-ERR unknown command '???",
	} {
		c := dial(t, p)
		c.send(input)
		_ = c.Conn.(*net.TCPConn).CloseWrite()
		if got := c.ended(); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%.20q: %q, want %q", input, got, want)
		}
	}
	eventually(t, "no connection is left", func() bool { return p.Connections() == 0 && p.handshakes.Len() == 0 })
}

// TestSilence checks the time-outs: of strangers, of connections that are idle, and of commands that arrive in part.
func TestSilence(t *testing.T) {
	const short, long = 50 * time.Millisecond, time.Minute
	for name, test := range map[string]struct {
		limits Limits
		input  string
	}{
		"nothing":              {Limits{HandshakeTimeout: short, IdleTimeout: long, FrameTimeout: long}, ""},
		"no first command":     {Limits{HandshakeTimeout: short, IdleTimeout: long, FrameTimeout: long}, "*1\r\n$4\r\nPI"},
		"half a command":       {Limits{HandshakeTimeout: long, IdleTimeout: long, FrameTimeout: short}, "PING\r\n*1\r\n$4\r\nPI"},
		"half a first command": {Limits{HandshakeTimeout: long, IdleTimeout: long, FrameTimeout: short}, "*1\r\n$4\r\nPI"},
		"idle":                 {Limits{HandshakeTimeout: long, IdleTimeout: short, FrameTimeout: long}, "PING\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, serve(t, func(c *Config) { c.Limits = test.limits }))
			c.send(test.input)
			if got := c.ended(); got != "" && got != "+PONG\r\n" {
				t.Errorf("%q", got)
			}
		})
	}
}

// TestSlowReader checks that a client that does not read its replies is disconnected, after a bounded number of them.
func TestSlowReader(t *testing.T) {
	p := serve(t, func(c *Config) { c.Limits.FrameTimeout = 100 * time.Millisecond })
	c := dial(t, p)
	pipeline := []byte(strings.Repeat(encoded("ECHO", strings.Repeat("x", 1000)), 1000))
	for {
		if _, err := c.Write(pipeline); err != nil {
			break
		}
	}
	eventually(t, "its end", func() bool { return p.Connections() == 0 })
	dialogue{{"PING", "+PONG\r\n"}}.run(t, dial(t, p))
}

// TestBudget checks that what connections hold counts towards the node's budget, and is given back.
func TestBudget(t *testing.T) {
	buffers := budget.New(3*connBytes + 64<<10)
	p := serve(t, func(c *Config) { c.Buffers = buffers })
	honest, greedy := dial(t, p), dial(t, p)
	dialogue{{"PING", "+PONG\r\n"}}.run(t, honest)
	greedy.send("*1\r\n$1000000\r\n")
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = greedy.Write(make([]byte, 1_000_000))
	}()
	_ = greedy.ended()
	<-sent
	dialogue{{"PING", "+PONG\r\n"}}.run(t, honest)
	_ = honest.Close()
	eventually(t, "nothing is held", func() bool { return buffers.Used() == 0 })
}

// TestUnreadReplies checks that large replies count towards the budget while they are sent.
func TestUnreadReplies(t *testing.T) {
	const size = 1 << 20
	buffers := budget.New(4 * size)
	p := serve(t, func(c *Config) { c.Buffers = buffers })
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := newConn(p.Server, ours, p.handshakes.Begin(ours))
	c.memory, _ = buffers.Open(connBytes, func() {})
	defer c.memory.Close()
	c.out.Bulk(make([]byte, size))
	sent := make(chan error)
	go func() { sent <- c.flush() }()
	eventually(t, "the reply counts", func() bool { return buffers.Used() > size })
	_ = theirs.Close()
	if err := <-sent; err == nil || buffers.Used() != connBytes {
		t.Errorf("%v; %d bytes are held", err, buffers.Used())
	}
	c.place.End()
}

// TestPlaces checks that established connections are bounded, and that strangers do not take their places.
func TestPlaces(t *testing.T) {
	p := serve(t, func(c *Config) { c.Limits.MaxConnections, c.Limits.MaxHandshakes = 2, 4 })
	first := dial(t, p)
	dialogue{{"PING", "+PONG\r\n"}}.run(t, first)
	dialogue{{"PING", "+PONG\r\n"}}.run(t, dial(t, p))
	third := dial(t, p)
	third.send("PING\r\n")
	if got := third.ended(); got != "-ERR max number of clients reached\r\n" {
		t.Errorf("beyond the bound: %q", got)
	}
	_ = first.Close()
	eventually(t, "a place", func() bool { return p.Connections() == 1 })
	strangers := []*peer{dial(t, p), dial(t, p), dial(t, p)}
	_ = strangers[0].ended() // one address has half of MaxHandshakes
	dialogue{{"PING", "+PONG\r\n"}}.run(t, strangers[2])
}

// TestDismissal checks that a connection ends when its token is revoked, and another one stays.
func TestDismissal(t *testing.T) {
	p, cluster := governed(t, nil)
	user, admin := dial(t, p), dial(t, p)
	user.do("AUTH " + cluster.Tokens["user"])
	admin.do("AUTH " + cluster.Tokens["admin"])
	user.send(encoded("QL.LOCK", "team/b", "v", "PX", "50", "WAIT", "0"))
	_ = user.reply()
	p.service.mu.Lock()
	for _, token := range cluster.Machine.Access().Tokens() {
		if token.GetName() == "user" {
			cluster.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "admin"}, Op: &wire.Command_RevokeToken{RevokeToken: &wire.RevokeToken{TokenId: token.GetId(), Reason: "test"}}})
			break
		}
	}
	p.service.mu.Unlock()
	if got := user.ended(); got != "" {
		t.Errorf("%q", got)
	}
	dialogue{{"PING", "+PONG\r\n"}}.run(t, admin)
}

// TestClose checks that a command that runs is answered, that idle connections end, and that nothing is left.
func TestClose(t *testing.T) {
	p := serve(t, nil)
	idle := dial(t, p)
	dialogue{{"PING", "+PONG\r\n"}}.run(t, idle)
	for range 4 {
		dial(t, p) // strangers
	}
	if err := p.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := idle.ended(); got != "" || p.Connections() != 0 || p.handshakes.Len() != 0 {
		t.Errorf("%q; %d connections, %d handshakes", got, p.Connections(), p.handshakes.Len())
	}
	if err := p.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestManyClients checks that connections do not disturb each other.
func TestManyClients(t *testing.T) {
	p := serve(t, nil)
	var all sync.WaitGroup
	for i := range 16 {
		c := dial(t, p)
		key := string(rune('a' + i))
		all.Go(func() {
			for range 50 {
				for _, step := range (dialogue{{"SET " + key + " v NX PX 50", ok}, {"GET " + key, "$1\r\nv\r\n"}, {"DELIFEQ " + key + " v", one}}) {
					c.send(encoded(strings.Split(step.words, " ")...))
					if got, err := readReply(c.r); err != nil || got != step.reply {
						t.Errorf("%s: %q, %v", step.words, got, err)
						return
					}
				}
			}
		})
	}
	all.Wait()
}
