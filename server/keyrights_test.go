package server

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/redis"
	"github.com/quorumlock/quorumlock/test/resp"
	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// redisClient is a client of the Redis port of a node.
type redisClient struct {
	*testing.T
	*resp.Conn
}

// dialRedis connects to the Redis port with a token, or without one.
func dialRedis(t *testing.T, node *Node, token string) redisClient {
	t.Helper()
	conn, err := net.Dial("tcp", node.RedisAddr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	c := redisClient{t, resp.New(conn)}
	if token != "" {
		if got := c.do("AUTH", token); got != "+OK\r\n" {
			t.Fatalf("AUTH at %s: %q", node.cfg.ID, got)
		}
	}
	return c
}

func (c redisClient) do(args ...string) string {
	c.T.Helper()
	reply, err := c.Do(args...)
	if err != nil {
		c.T.Fatalf("%.100q: %q, %v", args, reply, err)
	}
	return reply
}

// must sends a command that has this reply.
func (c redisClient) must(reply string, args ...string) {
	c.T.Helper()
	if got := c.do(args...); got != reply {
		c.T.Fatalf("%.100q: %q, want %q", args, got, reply)
	}
}

// redisCluster opens two nodes with a Redis port and a policy with the roles of package rights, a role for the identity
// of the same name each. It returns the leader, the follower, and the tokens of the identities.
func redisCluster(t *testing.T, change func(*Config)) (leader, follower *Node, tokens map[string]string) {
	t.Helper()
	network := &reserved{ports: map[string]net.Listener{}}
	peers := []Peer{{ID: "n1", Addr: network.reserve(t)}, {ID: "n2", Addr: network.reserve(t)}}
	var nodes []*Node
	for _, p := range peers {
		cfg := quick(t)
		cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = time.Second, time.Second, time.Second
		cfg.ID, cfg.Cluster, cfg.Network, cfg.Listen.Peer = p.ID, peers, network, p.Addr
		cfg.RedisAddr, cfg.Redis = "127.0.0.1:0", redis.Options{DefaultTTL: time.Minute, AllowForce: true}
		change(&cfg)
		nodes = append(nodes, open(t, cfg))
	}
	leader = serving(t, nodes...)
	follower = others(nodes, leader)[0]
	tokens = map[string]string{"holder": identity.NewToken()}
	policy := rights.Policy()
	policy.Bindings = append(policy.Bindings, &wire.Binding{Identity: "holder", Roles: []string{"user"}})
	setup := dial(t, leader)
	for _, role := range append(rights.Roles, "holder") {
		tokens[role] = identity.NewToken()
		setup.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_CreateToken{CreateToken: &wire.CreateTokenRequest{Name: role, AuthToken: tokens[role], Reason: "test"}}})
	}
	setup.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: policy, Reason: "test"}}})
	return leader, follower, tokens
}

// commandsOf returns the names of the commands of a port, from the port.
func commandsOf(c redisClient) (names []string) {
	for _, line := range strings.Split(c.do("COMMAND", "LIST"), "\r\n") {
		if line != "" && line[0] != '*' && line[0] != '$' {
			names = append(names, line)
		}
	}
	return names
}

// TestEveryCommandByRole sends every command of the Redis port as every role, through the leader and a follower, about a
// key that another identity holds. A command that is not in the table of package rights fails the test.
func TestEveryCommandByRole(t *testing.T) {
	leader, follower, tokens := redisCluster(t, func(*Config) {})
	holder := dialRedis(t, leader, tokens["holder"])
	names := commandsOf(holder)
	if len(names) != len(rights.Commands) {
		t.Errorf("the port has %d commands, the table %d", len(names), len(rights.Commands))
	}
	const held = "$4\r\nmine\r\n"
	for _, node := range []*Node{leader, follower} {
		key := "team/" + node.cfg.ID
		acquire := func() { holder.must("+OK\r\n", "SET", key, "mine", "NX", "PX", "3600000") }
		acquire()
		for _, name := range names {
			command, known := rights.Commands[name]
			if !known {
				t.Errorf("%s is not classified", name)
			}
			for _, role := range append([]string{""}, rights.Roles...) {
				c := dialRedis(t, node, tokens[role])
				for _, before := range command.Before {
					c.do(rights.About(key, before)...)
				}
				got := c.do(rights.About(key, command.Args)...)
				allowed := slices.Contains(command.Allowed, role)
				switch {
				case role == "" && !command.Open:
					if !strings.HasPrefix(got, "-NOAUTH ") {
						t.Errorf("nobody sends %s to %s: %q", name, node.cfg.ID, got)
					}
				case role != "" && allowed == strings.HasPrefix(got, "-NOPERM "):
					t.Errorf("%s sends %s to %s: %q", role, name, node.cfg.ID, got)
				case allowed && command.Ends:
					acquire()
				}
				_ = c.Close()
			}
			if got := holder.do("GET", key); got != held {
				t.Fatalf("after %s the key of the holder has %q", name, got)
			}
		}
	}
}

// TestForcedKeyIsAudited deletes keys of another identity at the leader and at a follower. The audit log has who did it
// from where, and the hold; the denials are recorded too, and watches show the end.
func TestForcedKeyIsAudited(t *testing.T) {
	logs := map[string]string{}
	leader, follower, tokens := redisCluster(t, func(c *Config) {
		c.AuditLog = filepath.Join(t.TempDir(), "audit.log")
		logs[c.ID] = c.AuditLog
	})
	holder := dialRedis(t, leader, tokens["holder"])
	admin := mustSpeakWith(t, leader, tokens["admin"])
	admin.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_Watch{Watch: &wire.WatchRequest{Prefix: "team/"}}})
	for _, node := range []*Node{leader, follower} {
		key := "team/" + node.cfg.ID
		holder.must("+OK\r\n", "SET", key, "mine", "NX", "PX", "3600000")
		shown := admin.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_GetLock{GetLock: &wire.GetLockRequest{Name: key}}}).GetGetLock()
		if len(shown.GetHolders()) != 1 || !shown.GetHolders()[0].GetByValue() {
			t.Fatalf("the lock is %v", shown)
		}
		hold := shown.GetHolders()[0]
		if got := dialRedis(t, node, tokens["user"]).do("DEL", key); !strings.HasPrefix(got, "-NOPERM ") {
			t.Errorf("DEL of a user at %s: %q", node.cfg.ID, got)
		}
		operator := dialRedis(t, node, tokens["operator"])
		operator.must(":1\r\n", "DEL", key)
		all := admin.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_ListAudit{ListAudit: &wire.ListAuditRequest{}}}).GetListAudit().GetRecords()
		i := slices.IndexFunc(all, func(r *wire.AuditRecord) bool { return r.GetLock() == key })
		if i < 0 {
			t.Fatalf("no record is about %s: %v", key, all)
		}
		r := all[i]
		if r.GetAction() != wire.AuditRecord_FORCE_RELEASE || r.GetCaller().GetIdentity() != "operator" || r.GetCaller().GetAddress() != operator.LocalAddr().String() ||
			!strings.HasPrefix(r.GetCaller().GetCredential(), "token ") || r.GetHoldId() != hold.GetHoldId() || r.GetReason() == "" {
			t.Errorf("the record of DEL at %s is %v, the hold was %v", node.cfg.ID, r, hold)
		}
		awaitForced(admin, key)
	}
	for id, path := range logs {
		eventually(t, "the denial in the audit log of "+id, func() bool {
			return slices.ContainsFunc(auditLines(t, path), func(l auditLine) bool {
				return l.Kind == "DENIED" && l.Caller.Identity == "user" && l.Request == "ChangeKeys" && l.Status == "PERMISSION_DENIED"
			})
		})
	}
}

// awaitForced reads from a watch until it shows the forced release of a lock.
func awaitForced(s *speaker, lock string) {
	s.t.Helper()
	for {
		for _, e := range s.push().GetWatch().GetResponse().GetEvents() {
			if e.GetType() == wire.Event_FORCED && e.GetLock() == lock {
				return
			}
		}
	}
}

// TestWhatIsHiddenDoesNotExist sends every command about a lock that somebody holds and about one that nobody holds, both
// out of the caller's rights, while it holds something: the replies are the same.
func TestWhatIsHiddenDoesNotExist(t *testing.T) {
	leader, follower, tokens := redisCluster(t, func(*Config) {})
	holder := dialRedis(t, leader, tokens["holder"])
	holder.must("+OK\r\n", "SET", "hidden/1", "mine", "NX", "PX", "3600000")
	const tellApart = `local v = redis.call("get",KEYS[1]) if not v then return -1 end
		if v == ARGV[1] then return redis.call("del",KEYS[1]) end return 0`
	more := map[string]rights.Command{
		"an unequal script": {Args: []string{"EVAL", tellApart, "1", rights.Key, "v"}},
		"several keys":      {Args: []string{"DEL", "else/a", rights.Key, "else/b"}},
		"several values":    {Args: []string{"EXISTS", "else/a", rights.Key}},
	}
	for name, command := range rights.Commands {
		more[name] = command
	}
	for _, node := range []*Node{leader, follower} {
		for name, command := range more {
			var replies []string
			for _, key := range []string{"hidden/1", "hidden/2"} {
				c := dialRedis(t, node, tokens["other"])
				c.do("SET", "else/a", "v", "PX", "60000")
				for _, before := range command.Before {
					c.do(rights.About(key, before)...)
				}
				reply := c.do(rights.About(key, command.Args)...)
				if name != "quit" {
					reply += c.do("EXISTS", "else/a")
				}
				replies = append(replies, strings.ReplaceAll(reply, key, "it"))
				_ = c.Close()
			}
			if name != "client" && name != "hello" && name != "info" && replies[0] != replies[1] { // they count connections
				t.Errorf("%s at %s: %q if it is held, %q otherwise", name, node.cfg.ID, replies[0], replies[1])
			}
		}
	}
	holder.must("$4\r\nmine\r\n", "GET", "hidden/1")
}

// TestRedisQuotas checks that the quotas of an identity bound what it does through the Redis port.
func TestRedisQuotas(t *testing.T) {
	leader, _, tokens := redisCluster(t, func(*Config) {})
	admin := mustSpeakWith(t, leader, tokens["admin"])
	limit := func(quota *wire.Quota) {
		t.Helper()
		answer := admin.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_GetPolicy{GetPolicy: &wire.GetPolicyRequest{}}}).GetGetPolicy()
		policy := answer.GetPolicy()
		quota.Identity = "user"
		policy.Quotas = []*wire.Quota{quota}
		admin.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: policy, ExpectedRevision: answer.GetRevision(), Reason: "test"}}})
	}
	set := func(c redisClient, key string) string {
		return c.do("SET", key, strings.Repeat("v", 1000), "NX", "PX", "60000")
	}
	refused := func(what, reply string) {
		t.Helper()
		if !strings.HasPrefix(reply, "-QUOTA ") && !strings.HasPrefix(reply, "-ERR max number of clients") {
			t.Errorf("beyond the quota of %s: %q", what, reply)
		}
	}
	c := dialRedis(t, leader, tokens["user"])
	limit(&wire.Quota{Sessions: 1})
	set(c, "a")
	refused("sessions", set(c, "b"))
	refused("sessions", c.do("QL.LOCK", "c", "v", "PX", "1000", "WAIT", "0"))
	limit(&wire.Quota{Claims: 1})
	refused("claims", set(c, "b"))
	limit(&wire.Quota{Bytes: 2_000})
	refused("bytes", set(c, "b"))
	c.must(":1\r\n", "DEL", "a")
	limit(&wire.Quota{Connections: 1})
	second := dialRedis(t, leader, "")
	refused("connections", second.do("AUTH", tokens["user"]))
	limit(&wire.Quota{RequestsPerSecond: 1})
	for name, args := range map[string][]string{
		"GET": {"GET", "a"}, "SET": {"SET", "a", "v", "PX", "50"}, "an unknown script": {"EVAL", "return 1", "0"}, "SCRIPT LOAD": {"SCRIPT", "LOAD", "return 1"},
		"INFO": {"INFO"}, "COMMAND": {"COMMAND"}, "WAIT": {"WAIT", "1", "1"}, "WATCH": {"WATCH", "a"}, "QL.LOCK": {"QL.LOCK", "a", "v", "PX", "50", "WAIT", "0"},
	} {
		reply := c.do(args...)
		for end := time.Now().Add(time.Minute); !strings.HasPrefix(reply, "-QUOTA ") && time.Now().Before(end); {
			c.must("+OK\r\n", "UNWATCH") // only the first WATCH of a key is a request
			reply = c.do(args...)        // on a slow machine, two of them may be a second apart
		}
		refused("requests per second for "+name, reply)
	}
}
