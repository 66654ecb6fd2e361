package command

import (
	"testing"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestClientsDoNotProposeForNodes takes every kind of command from the schema. What a client proposes is refused before
// the log if only nodes propose it, or if it names a node.
func TestClientsDoNotProposeForNodes(t *testing.T) {
	r := newLeading(t)
	op := (&wire.Command{}).ProtoReflect().Descriptor().Oneofs().ByName("op").Fields()
	for i := range op.Len() {
		kind := op.Get(i)
		for what, change := range map[string]func(*wire.Command){
			"without a caller":       func(*wire.Command) {},
			"with a caller":          func(c *wire.Command) { c.Caller = &wire.Caller{Identity: "ann"} },
			"with a node":            func(c *wire.Command) { c.Node = "n1" },
			"with a node, a session": func(c *wire.Command) { c.Node, c.SessionId = "n1", 1 },
			"with a node's identity": func(c *wire.Command) { c.Caller = &wire.Caller{Identity: "node n1"} },
		} {
			cmd := &wire.Command{}
			m := cmd.ProtoReflect()
			m.Set(kind, m.NewField(kind))
			change(cmd)
			if !fsm.OfNode(cmd) && cmd.GetCaller().GetIdentity() != "node n1" {
				continue
			}
			var got statuses
			r.Propose(cmd, got.done)
			if len(got) != 1 || got[0] != wire.Status_PERMISSION_DENIED && got[0] != wire.Status_SESSION_LOST {
				t.Errorf("%s %s: answered %v", kind.Name(), what, got)
			}
		}
	}
	r.Proposer.End(&wire.Result{})
}
