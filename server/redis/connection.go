package redis

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/server/redis/argument"
	"github.com/quorumlock/quorumlock/server/redis/keyname"
	"github.com/quorumlock/quorumlock/server/redis/resp"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func connectionCommands() []command {
	fast := []string{"loading", "stale", "fast"}
	auth := []string{"noscript", "loading", "stale", "fast", "no_auth"}
	return []command{
		{name: "ping", arity: -1, flags: []string{"fast"}, right: rightNone, run: ping, summary: "Replies PONG."},
		{name: "echo", arity: 2, flags: fast, right: rightNone, run: echo, summary: "Replies its argument."},
		{name: "select", arity: 2, flags: fast, right: rightNone, run: selectDB,
			summary: "Selects a database, which is a prefix of lock names."},
		{name: "auth", arity: -2, flags: auth, right: rightNone, open: true, control: true, run: authenticate,
			summary: "Makes the owner of a token the caller: AUTH [identity] token."},
		{name: "hello", arity: -1, flags: auth, right: rightNone, open: true, control: true, run: hello,
			summary: "Selects RESP2 or RESP3, and authenticates like AUTH."},
		{name: "quit", arity: -1, flags: auth, right: rightNone, open: true, control: true, run: quit,
			summary: "Closes the connection."},
		{name: "reset", arity: 1, flags: auth, right: rightNone, open: true, control: true, run: reset,
			summary: "Makes the connection as it was at its start."},
		{name: "client", arity: -2, flags: fast, right: rightNone, run: clientCommand,
			summary: "Names the connection (SETNAME), or describes it."},
		{name: "wait", arity: 3, flags: []string{"noscript"}, right: rightNone, counted: true, run: waitVoters,
			summary: "Replies the number of other voters in contact: what was replied is on a majority."},
		{name: "role", arity: 1, flags: fast, right: rightNone, run: role, summary: "Replies master, on each node."},
		{name: "info", arity: -1, flags: fast, right: rightNone, counted: true, run: info, summary: "Describes this node."},
		{name: "command", arity: -1, flags: fast, right: rightNone, counted: true, run: commandCommand,
			summary: "Describes the commands."},
	}
}

func ping(c *conn, args [][]byte) error {
	switch len(args) {
	case 1:
		c.out.Status("PONG")
	case 2:
		c.out.Bulk(args[1])
	default:
		return argument.WrongArity("ping")
	}
	return nil
}

func echo(c *conn, args [][]byte) error {
	c.out.Bulk(args[1])
	return nil
}

func selectDB(c *conn, args [][]byte) error {
	n, err := argument.Integer(args[1])
	switch {
	case err != nil:
		return err
	case n < 0 || n >= keyname.Databases:
		return resp.Error("ERR DB index is out of range")
	}
	c.db = int(n)
	c.out.Status("OK")
	return nil
}

func authenticate(c *conn, args [][]byte) error {
	user, token := defaultUser, args[1]
	switch len(args) {
	case 2:
	case 3:
		user, token = string(args[1]), args[2]
	default:
		return argument.ErrSyntax
	}
	if err := c.authenticate(user, string(token)); err != nil {
		return err
	}
	c.out.Status("OK")
	return nil
}

// hello implements HELLO [version [AUTH user token] [SETNAME name]].
func hello(c *conn, args [][]byte) error {
	o, err := argument.ParseHello(args[1:])
	if err != nil {
		return err
	}
	if o.Auth != nil {
		if err := c.authenticate(string(o.Auth[0]), string(o.Auth[1])); err != nil {
			return err
		}
	}
	if c.identify() != nil {
		return resp.Error("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
	}
	if o.Named {
		c.name = o.Name
	}
	if o.Version != 0 {
		c.out.RESP3 = o.Version == 3
	}
	c.out.Map(7)
	c.pair("server", "quorumlock")
	c.pair("version", redisVersion)
	c.out.Text("proto")
	c.out.Integer(int64(c.protocol()))
	c.out.Text("id")
	c.out.Integer(int64(c.id))
	c.pair("mode", "standalone")
	c.pair("role", "master")
	c.out.Text("modules")
	c.out.Array(0)
	return nil
}

// protocol returns the version of the protocol.
func (c *conn) protocol() int {
	if c.out.RESP3 {
		return 3
	}
	return 2
}

var errQuit = errors.New("the client quit")

func quit(c *conn, _ [][]byte) error {
	c.out.Status("OK")
	return closing(errQuit)
}

func reset(c *conn, _ [][]byte) error {
	if c.login != nil {
		c.logout()
		c.place = c.srv.handshakes.Begin(c.raw) // it counts as one without a caller again
	}
	c.state, c.out.RESP3 = state{}, false
	c.out.Status("RESET")
	return nil
}

// clientCommand implements CLIENT.
func clientCommand(c *conn, args [][]byte) error {
	sub := strings.ToLower(string(args[1][:min(len(args[1]), maxNameBytes)]))
	arities := map[string]int{
		"id": 2, "getname": 2, "setname": 3, "setinfo": 4, "info": 2, "list": -2, "no-evict": 3, "no-touch": 3, "reply": 3, "tracking": -3,
	}
	arity, known := arities[sub]
	if !known {
		return argument.Unsupported("CLIENT " + string(args[1]))
	}
	if err := (&command{name: "client|" + sub, arity: arity}).checkArity(args); err != nil {
		return err
	}
	switch sub {
	case "id":
		c.out.Integer(int64(c.id))
	case "getname":
		c.replyName()
	case "setname":
		name, err := argument.ClientName(args[2])
		if err != nil {
			return err
		}
		c.name = name
		c.out.Status("OK")
	case "info", "list":
		c.out.Text(c.line())
	case "reply":
		return c.setReplies(args[2])
	case "tracking":
		return c.track(args[2:])
	default: // SETINFO, NO-EVICT and NO-TOUCH change nothing here
		c.out.Status("OK")
	}
	return nil
}

func (c *conn) replyName() {
	if c.name == "" {
		c.out.Null()
		return
	}
	c.out.Text(c.name)
}

// track implements CLIENT TRACKING as far as it changes nothing: OFF, and ON with OPTIN, which tracks only what CLIENT
// CACHING names, and that is not supported. Some clients send it with each connection.
func (c *conn) track(args [][]byte) error {
	optIn := len(args) == 2 && argument.Is(args[0], "on") && argument.Is(args[1], "optin")
	if !optIn && (len(args) != 1 || !argument.Is(args[0], "off")) {
		return argument.Unsupported("CLIENT TRACKING without OPTIN")
	}
	c.out.Status("OK")
	return nil
}

// setReplies implements CLIENT REPLY. Only ON is replied to.
func (c *conn) setReplies(mode []byte) error {
	switch {
	case argument.Is(mode, "on"):
		c.mode = replyAll
		c.out.Status("OK")
	case argument.Is(mode, "off"):
		c.mode = replyNone
	case argument.Is(mode, "skip") && c.mode == replyAll:
		c.mode = skipNext
	case argument.Is(mode, "skip"):
	default:
		return argument.ErrSyntax
	}
	return nil
}

// line describes the connection as CLIENT INFO and CLIENT LIST do. Other connections are not listed: they may belong to
// other identities.
func (c *conn) line() string {
	return fmt.Sprintf("id=%d addr=%s laddr=%s fd=-1 name=%s age=%d idle=0 flags=N db=%d sub=0 psub=0 ssub=0 multi=-1 watch=%d qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd=client user=%s redir=-1 resp=%d lib-name= lib-ver=\n",
		c.id, c.remote, c.LocalAddr(), c.name, int(time.Since(c.begun).Seconds()), c.db, min(len(c.watched), 1), c.login.caller.Identity(), c.protocol())
}

// waitVoters implements WAIT. It need not wait: what was replied is on a majority of the voters already.
func waitVoters(c *conn, args [][]byte) error {
	if _, err := argument.Integer(args[1]); err != nil {
		return err
	}
	if _, err := argument.Timeout(args[2]); err != nil {
		return err
	}
	if err := c.admit(&wire.ReadKeys{}, nil); err != nil {
		return err
	}
	ctx := c.login.begin(c.srv.cfg.Limits.RequestTimeout)
	defer c.login.finish()
	n, err := c.srv.cfg.Service.Voters(ctx)
	if err != nil {
		return failure(ctx, err)
	}
	c.out.Integer(int64(n))
	return nil
}
