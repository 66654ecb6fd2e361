package read_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// question is whether an identity may do something, and the node's answer.
type question struct {
	// Me is the answer of WhoAmI. Lock is empty for all locks, and for a verb on the cluster.
	Me        json.RawMessage
	On        string // onLock, onAllLocks or onCluster
	Lock      string
	Verb      string
	Allowed   bool
	Of, Under string // for messages
}

// script lets the console's module answer the questions, and prints those on which it differs.
const script = `
import { readFileSync } from "node:fs";
import { Rights } from "./rights.js";
const asked = JSON.parse(readFileSync("questions.json", "utf8"));
const answer = ({ Me, On, Lock, Verb }) => (On === "onLock" ? new Rights(Me).onLock(Lock, Verb) : new Rights(Me)[On](Verb));
for (const q of asked) if (answer(q) !== q.Allowed) console.log(q.Under, q.Of, q.On, q.Lock, q.Verb, "want", q.Allowed);
console.log("compared", asked.length);
`

// TestConsoleDecidesAsTheNode compares what the console offers with what the node allows: over policies, identities,
// locks and verbs, its module rights.js answers as package rights does. It is skipped without Node, except in a complete
// check.
func TestConsoleDecidesAsTheNode(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("QUORUMLOCK_CHECK") == "1" {
			t.Fatal("node is not installed: install Node 20 or later")
		}
		t.Skip("node is not installed")
	}
	dir := t.TempDir()
	asked := questions(t)
	module, err := os.ReadFile(filepath.Join("..", "..", "console", "ui", "rights.js"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(asked)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"rights.js": module, "compare.js": []byte(script), "questions.json": list, "package.json": []byte(`{"type":"module"}`),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), node, "compare.js")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if want := fmt.Sprintln("compared", len(asked)); err != nil || string(out) != want {
		t.Errorf("%v\n%s", err, out)
	}
}

// policies are the policies of the comparison; nil is a cluster without one.
func policies() map[string]*wire.Policy {
	read, operate := wire.Verb_READ, wire.Verb_OPERATE
	role := func(name string, cluster []wire.Verb, rules ...*wire.LockRule) *wire.Role {
		return &wire.Role{Name: name, Locks: rules, Cluster: cluster}
	}
	below := func(prefix string, verbs ...wire.Verb) *wire.LockRule {
		return &wire.LockRule{Prefix: prefix, Verbs: verbs}
	}
	one := func(name string, verbs ...wire.Verb) *wire.LockRule { return &wire.LockRule{Name: name, Verbs: verbs} }
	bind := func(identity string, roles ...string) *wire.Binding {
		return &wire.Binding{Identity: identity, Roles: roles}
	}
	return map[string]*wire.Policy{
		"none": nil,
		"own roles": {
			Roles: []*wire.Role{
				role("a", nil, below("a/", read, operate)), role("ab", nil, below("a/b/", operate), one("b", operate)),
				role("members", []wire.Verb{wire.Verb_MEMBERS}, below("/", read)), role("all", nil, below("/", operate), below("a/", read)),
			},
			Bindings: []*wire.Binding{bind("ann", "a"), bind("bob", "ab"), bind("cleo", "members", "ab"), bind("*o*", "all")},
		},
		"built-in roles": {Bindings: []*wire.Binding{bind("ann", "reader"), bind("bob", "operator"), bind("cleo", "admin"), bind("eve", "user")}},
	}
}

func questions(t *testing.T) (asked []question) {
	t.Helper()
	for under, policy := range policies() {
		var compiled *rights.Policy
		if policy != nil {
			var err error
			if compiled, err = rights.Compile(policy); err != nil {
				t.Fatal(err)
			}
		}
		for _, identity := range []string{"ann", "bob", "cleo", "eve", "zoe", ""} {
			g := compiled.Grants(identity)
			locks, cluster := g.Rules()
			me, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(&wire.WhoAmIResponse{HasPolicy: policy != nil, Locks: locks, Cluster: cluster})
			if err != nil {
				t.Fatal(err)
			}
			for number, verb := range wire.Verb_name {
				v := wire.Verb(number)
				add := func(on, lock string, allowed bool) {
					asked = append(asked, question{Me: me, On: on, Lock: lock, Verb: verb, Allowed: allowed, Of: identity, Under: under})
				}
				add("onAllLocks", "", g.OnAllLocks(v))
				add("onCluster", "", g.OnCluster(v))
				for _, lock := range []string{"a", "a/x", "a/b", "a/b/c", "ab/c", "b", "b/x", "c/a/b", "é/ü", "a\u202e/x"} {
					add("onLock", lock, g.OnLock(lock, v))
				}
			}
		}
	}
	return asked
}
