package fuzzing

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/test/generate"
	"github.com/quorumlock/quorumlock/test/resp"
	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// honestKey is a key of the honest identity, and honestValue its value, which the fuzzer does not send.
	honestKey, honestValue = "honest/key", "what-only-the-owner-knows"
	// ownKeys begins the keys that the policy allows to the fuzzer.
	ownKeys = "own/"
)

// FuzzRedis sends arbitrary conversations to the Redis port, half of them with a policy, which hides the honest key.
func FuzzRedis(f *testing.F) {
	for _, data := range seeds()[:corpus] {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { talkRedis(t, data, nil) })
}

func talkRedis(t *testing.T, data []byte, answered map[string]bool) {
	s := generate.NewSource(data)
	governed := s.OneIn(2)
	inBubble(t, nil, false, func(g *target) {
		g.prepareKeys(governed)
		c := &redisConn{target: g, hides: governed}
		defer func() { c.close() }()
		for n := 0; s.More() && n < mostRequests; n++ {
			args := redisCommand(s)
			if c.exchange(s, args) && answered != nil {
				answered[strings.ToLower(args[0])] = true
			}
			g.check(strings.Join(args, " "))
			g.checkKey(args)
		}
	})
}

// prepareKeys acquires the honest key, and applies a policy if the conversation is governed.
func (g *target) prepareKeys(governed bool) {
	g.t.Helper()
	acquired := g.do(&wire.Command{Caller: &wire.Caller{Identity: honestIdentity}, Op: &wire.Command_ChangeKeys{ChangeKeys: &wire.ChangeKeys{
		Action: wire.ChangeKeys_ACQUIRE, Names: []string{honestKey}, Value: []byte(honestValue), TtlMs: 86_400_000, NodeId: "n2", Boot: 1, Seq: 1,
	}}})
	if acquired.GetStatus() != wire.Status_GRANTED {
		g.t.Fatal(acquired)
	}
	if !governed {
		return
	}
	role := &wire.Role{Name: "fuzzer", Locks: []*wire.LockRule{{Prefix: ownKeys, Verbs: []wire.Verb{wire.Verb_READ, wire.Verb_LOCK, wire.Verb_OPERATE}}}}
	set := g.do(&wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Reason: "test", Policy: &wire.Policy{
		Roles: []*wire.Role{role}, Bindings: []*wire.Binding{{Identity: honestIdentity, Roles: []string{"admin"}}, {Identity: identity.Anonymous, Roles: []string{role.Name}}},
	}}}})
	if set.GetStatus() != wire.Status_OK {
		g.t.Fatal(set)
	}
}

// checkKey checks that the honest identity holds its key.
func (g *target) checkKey(after []string) {
	g.t.Helper()
	g.node.Replica().View(func(m *fsm.Machine) {
		if k, _ := m.Key(honestKey); !k.Held || k.Identity != honestIdentity || k.Value != honestValue || k.TTL != 86_400_000 {
			g.t.Fatalf("after %q the honest key is %+v", after, k)
		}
	})
}

// words are arguments that commands understand, and keys and values.
var words = []string{
	ownKeys + "a", ownKeys + "b", "free", honestKey, "honest/lock", "v", "w", "", "0", "1", "2", "3", "50", "1000", "86400000", "86400001", "-1", "99999999999999999999",
	"NX", "XX", "GET", "EX", "PX", "KEEPTTL", "IFEQ", "WAIT", "LOAD", "EXISTS", "FLUSH", "SETNAME", "SETINFO", "LIST", "INFO", "DOCS", "AUTH", "default",
	"ql_unknown", rights.Script, "b70c2384248f88e6b75b9f89241a180f856ad852", "return 1", strings.Repeat("x", 600), strings.Repeat("y", 3_000), "\x00\xff\r\n", "a b",
}

// redisCommand returns a command: an example, often with some arguments replaced, added or removed.
func redisCommand(s *generate.Source) []string {
	names := make([]string, 0, len(rights.Commands))
	for name := range rights.Commands {
		names = append(names, name)
	}
	slices.Sort(names)
	key := words[s.Below(5)]
	args := rights.About(key, rights.Commands[names[s.Below(len(names))]].Args)
	for s.OneIn(2) {
		at, word := s.Below(len(args)), words[s.Below(len(words))]
		switch s.Below(4) {
		case 0:
			args = slices.Insert(args, at+1, word)
		case 1:
			args = slices.Delete(args, at, at+1)
			if len(args) == 0 {
				return []string{"PING"}
			}
		default:
			if at > 0 {
				args[at] = word
			}
		}
	}
	return args
}

// redisConn is a connection to the Redis port. It is opened when it is needed.
type redisConn struct {
	*target
	conn *resp.Conn
	// hides is set if no reply may have anything of the honest key.
	hides bool
}

func (c *redisConn) open() {
	c.t.Helper()
	conn, err := c.net.Host("client").Dial(c.t.Context(), "n1:7403")
	if err != nil {
		c.t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(waitLimit))
	c.conn = resp.New(conn)
}

func (c *redisConn) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// exchange sends a command, sometimes with a bit flipped, and reports whether its reply is no error. The node may close
// the connection instead of a reply.
func (c *redisConn) exchange(s *generate.Source, args []string) (succeeded bool) {
	c.t.Helper()
	if c.conn == nil {
		c.open()
	}
	_ = c.conn.SetDeadline(time.Now().Add(waitLimit))
	if strings.EqualFold(args[0], "client") && slices.ContainsFunc(args, func(arg string) bool { return strings.EqualFold(arg, "reply") }) {
		return false // it would have no reply
	}
	data := resp.Encode(args...)
	if s.OneIn(24) {
		data[s.Below(len(data))] ^= 1 << s.Below(8)
		_, _ = c.conn.Write(data)
		<-time.After(10 * time.Millisecond)
		c.close()
		return false
	}
	if _, err := c.conn.Write(data); err != nil {
		c.close()
		return false
	}
	reply, err := c.conn.Reply()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("%.200q is not answered", args)
	}
	if err != nil && reply != "" {
		c.t.Fatalf("%.200q is answered %.200q: %v", args, reply, err)
	}
	if c.hides && (strings.Contains(reply, honestValue) || strings.Contains(reply, honestIdentity) && !strings.Contains(strings.Join(args, " "), honestIdentity)) {
		c.t.Fatalf("%.200q is answered %.200q", args, reply)
	}
	if err != nil {
		c.close()
		return false
	}
	return reply[0] != '-'
}

// TestSeedsReachEveryCommand verifies that each command of the Redis port succeeds in some conversation of the seeds.
func TestSeedsReachEveryCommand(t *testing.T) {
	answered := map[string]bool{}
	for i, data := range seeds() {
		if talkRedis(t, data, answered); t.Failed() {
			t.Fatalf("seed %d", i)
		}
		if i+1 >= corpus && len(answered) == len(rights.Commands)-1 { // AUTH fails: nobody has a token
			return
		}
	}
	for name := range rights.Commands {
		if !answered[name] && name != "auth" {
			t.Errorf("%s never succeeds", name)
		}
	}
}
