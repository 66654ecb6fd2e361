package keys

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// nodeLabel is the key of the label of a client that names the node which received its request.
const nodeLabel = "node"

// labelled returns a client's information with the label.
func labelled(client *wire.ClientInfo, node string) *wire.ClientInfo {
	if nodeOf(client) == node {
		return client
	}
	client = proto.CloneOf(client)
	client.Labels = slices.DeleteFunc(client.Labels, func(l *wire.Label) bool { return l.GetKey() == nodeLabel })
	client.Labels = append(client.Labels, &wire.Label{Key: nodeLabel, Value: node})
	return client
}

func nodeOf(client *wire.ClientInfo) string {
	for _, l := range client.GetLabels() {
		if l.GetKey() == nodeLabel {
			return l.GetValue()
		}
	}
	return ""
}

// suspect is an acquire that was refused, which may be part of a Redlock quorum: such a client acquires one key with one
// value at several servers. At several nodes of one cluster, all but the first refuse.
type suspect struct {
	caller *wire.Caller
	op     *wire.ChangeKeys
}

// suspect has an acquire examined if it was refused. It does not block: under load, some are not examined.
func (e *executor) suspect(caller *wire.Caller, op *wire.ChangeKeys, res *wire.Result) {
	if res.GetStatus() != wire.Status_NOT_ACQUIRED || len(op.GetValue()) == 0 {
		return
	}
	select {
	case e.suspects <- suspect{caller, op}:
	default:
	}
}

// warnOfQuorums examines refused acquires until ctx ends.
func (e *executor) warnOfQuorums(ctx context.Context) {
	for {
		select {
		case s := <-e.suspects:
			e.examine(s)
		case <-ctx.Done():
			return
		}
	}
}

// examine warns if a key is held by the caller with the value of the refused acquire, but through another node.
func (e *executor) examine(s suspect) {
	var name, holder string
	e.replica.View(func(m *fsm.Machine) {
		for _, n := range s.op.GetNames() {
			k, _ := m.Key(n)
			if node := nodeOf(k.Client); k.Held && k.Identity == s.caller.GetIdentity() && k.Value == string(s.op.GetValue()) && node != "" && node != s.op.GetNodeId() {
				name, holder = n, node
			}
		}
	})
	if name != "" {
		e.warnings.Warn("a client acquires one key with one value at several nodes, as a Redlock quorum does: give it this cluster as one endpoint (docs/REDIS.md)",
			"key", name, "identity", s.caller.GetIdentity(), "held_through", holder, "refused_through", s.op.GetNodeId())
	}
}
