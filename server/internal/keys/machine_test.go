package keys

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// text is the log of a node.
type text struct {
	sync.Mutex
	bytes.Buffer
}

func (t *text) Write(line []byte) (int, error) {
	t.Lock()
	defer t.Unlock()
	return t.Buffer.Write(line)
}

// do changes a key through the node, for someone.
func (n *node) do(who string, op *wire.ChangeKeys) wire.Status_Code {
	res, err := n.service.Change(as(n.c.t.Context(), who), identity.Sender{Identity: who}, op)
	if err != nil {
		n.c.t.Error(err)
	}
	return res.GetStatus()
}

// TestQuorumOverNodesIsLogged verifies that the leader warns of a client that acquires one key with one value at several
// nodes, and of no other that is refused.
func TestQuorumOverNodesIsLogged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var out text
		c := newCluster(t, func(cfg *Config) {
			if cfg.NodeID == "n1" {
				cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: &out})
			}
		})
		c.nodes["n1"].useMachine()
		other := acquireKey("k")
		other.Value = []byte("other")
		for _, step := range []struct {
			what, through, who string
			op                 *wire.ChangeKeys
			warns              bool
		}{
			{"acquires", "n2", "ann", acquireKey("k"), false},
			{"tries again", "n2", "ann", acquireKey("k"), false},
			{"has the same value", "n3", "bob", acquireKey("k"), false},
			{"has another value", "n3", "ann", other, false},
			{"is a quorum", "n3", "ann", acquireKey("k"), true},
			{"is a quorum through the leader", "n1", "ann", acquireKey("k"), true},
		} {
			out.Reset()
			c.nodes[step.through].do(step.who, step.op)
			synctest.Wait()
			said := out.String()
			warned := strings.Contains(said, "docs/REDIS.md") && strings.Contains(said, "held_through=n2 refused_through="+step.through)
			if warned != step.warns || !step.warns && said != "" {
				t.Errorf("who %s: logged %q", step.what, said)
			}
		}
	})
}

// TestKeyStates verifies what a read says of keys of the caller, of others, and of native holds.
func TestKeyStates(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		n1, n2 := c.nodes["n1"], c.nodes["n2"]
		n1.useMachine()
		n1.left = 1500 * time.Millisecond
		n2.do("ann", acquireKey("own"))
		n2.do("bob", acquireKey("other"))
		lease := &wire.OpenLease{SecretHash: make([]byte, 32), TtlMs: 10_000, Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "native"}}}}
		if res := n1.apply(&wire.Command{Caller: &wire.Caller{Identity: "ann"}, Op: &wire.Command_OpenLease{OpenLease: lease}}); res.GetStatus() != wire.Status_GRANTED {
			t.Fatal(res)
		}
		keys, err := n2.service.Read(as(t.Context(), "ann"), "own", "other", "native", "none")
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []struct {
			exists, key, own bool
			identity         string
			remaining        uint32
		}{{true, true, true, "ann", 1500}, {true, true, false, "bob", 1500}, {true, false, false, "ann", 0}, {false, false, false, "", 0}} {
			k := keys[i]
			if k.GetExists() != want.exists || k.GetKey() != want.key || k.GetOwn() != want.own || k.GetIdentity() != want.identity || k.GetRemainingMs() != want.remaining {
				t.Errorf("key %d: %v", i, k)
			}
			if (string(k.GetValue()) == "v") != want.key || k.GetGeneration() != 0 != want.key || k.GetHoldId() != 0 != want.exists {
				t.Errorf("key %d: %v", i, k)
			}
		}
	})
}

// TestAddTTL verifies additions to the TTL of a key that somebody else extends in the meantime, and of keys that are not
// the caller's own.
func TestAddTTL(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		n1, n2 := c.nodes["n1"], c.nodes["n2"]
		n1.useMachine()
		n1.left = 4 * time.Second
		plain := n1.propose
		var ttls []uint32
		meanwhile := 0 // extensions by others that are still to come
		n1.propose = func(cmd *wire.Command, done func(*wire.Result)) bool {
			if op := cmd.GetChangeKeys(); op.GetVersion() != nil {
				ttls = append(ttls, op.GetTtlMs())
				if meanwhile > 0 {
					meanwhile--
					another := &wire.ChangeKeys{Action: wire.ChangeKeys_EXTEND, Names: op.GetNames(), Value: []byte("v"), TtlMs: 9_000, NodeId: "n9", Boot: 1, Seq: uint64(meanwhile + 1)}
					n1.apply(&wire.Command{Caller: cmd.GetCaller(), Op: &wire.Command_ChangeKeys{ChangeKeys: another}})
					n1.left += time.Second
				}
			}
			return plain(cmd, done)
		}
		n2.do("ann", acquireKey("k"))
		for _, step := range []struct {
			what, who, name, value string
			meanwhile              int
			want                   wire.Status_Code
			ttl                    uint32
		}{
			{"of its own", "ann", "k", "v", 0, wire.Status_OK, 10_000},
			{"while others extend it", "ann", "k", "v", 2, wire.Status_OK, 12_000},
			{"while others always extend it", "ann", "k", "v", 1000, wire.Status_UNAVAILABLE, 27_000},
			{"with another value", "ann", "k", "w", 0, wire.Status_NOT_HELD, 28_000},
			{"of another identity", "bob", "k", "v", 0, wire.Status_NOT_HELD, 28_000},
			{"that does not exist", "ann", "none", "v", 0, wire.Status_NOT_FOUND, 6_000},
		} {
			ttls, meanwhile = nil, step.meanwhile
			op := &wire.ChangeKeys{Names: []string{step.name}, Value: []byte(step.value), TtlMs: 6_000}
			res, err := n2.service.AddTTL(as(t.Context(), step.who), identity.Sender{}, op)
			if err != nil || res.GetStatus() != step.want || len(ttls) == 0 || ttls[len(ttls)-1] != step.ttl {
				t.Errorf("%s: %v, %v, proposed TTLs %v", step.what, res, err, ttls)
			}
			if len(ttls) > maxAddAttempts {
				t.Errorf("%s: %d attempts", step.what, len(ttls))
			}
		}
	})
}
