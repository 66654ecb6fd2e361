package fsm

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// opField is the oneof of a command that determines its kind.
var opField = (&wire.Command{}).ProtoReflect().Descriptor().Oneofs().ByName("op")

// proposers are the options of the kinds of commands, by the number of their field.
var proposers = func() map[protoreflect.FieldNumber]wire.Proposer {
	all := map[protoreflect.FieldNumber]wire.Proposer{}
	for i := range opField.Fields().Len() {
		field := opField.Fields().Get(i)
		all[field.Number()], _ = proto.GetExtension(field.Options(), wire.E_Proposer).(wire.Proposer)
	}
	return all
}()

// ProposerOf returns who may propose commands of that kind.
func ProposerOf(cmd *wire.Command) wire.Proposer {
	field := cmd.ProtoReflect().WhichOneof(opField)
	if field == nil {
		return wire.Proposer_PROPOSER_UNSPECIFIED
	}
	return proposers[field.Number()]
}

// OfNode reports whether a command is one that a node proposes by itself. Ports refuse such commands of clients.
func OfNode(cmd *wire.Command) bool {
	return cmd.GetNode() != "" || ProposerOf(cmd) == wire.Proposer_NODE
}

// nodeMayRecord reports whether nodes do that by themselves.
func nodeMayRecord(act wire.AuditRecord_Action) bool {
	value := act.Descriptor().Values().ByNumber(act.Number())
	if value == nil {
		return false
	}
	may, _ := proto.GetExtension(value.Options(), wire.E_ByNodes).(bool)
	return may
}

// validProposer refuses what nodes do not propose if it names a node.
func validProposer(cmd *wire.Command) *wire.Result {
	if cmd.Node == "" {
		return nil
	}
	if cmd.Caller != nil || cmd.SessionId != 0 {
		return answer(wire.Status_PERMISSION_DENIED, "a command of a node has neither a caller nor a session")
	}
	switch ProposerOf(cmd) {
	case wire.Proposer_NODE:
	case wire.Proposer_CLIENT_OR_NODE:
		if act := cmd.GetRecordAct().GetAction(); !nodeMayRecord(act) {
			return answer(wire.Status_PERMISSION_DENIED, fmt.Sprintf("nodes do not propose %v by themselves", act))
		}
	default:
		return answer(wire.Status_PERMISSION_DENIED, fmt.Sprintf("nodes do not propose %T by themselves", cmd.Op))
	}
	return validText("the node", cmd.Node, maxNodeBytes)
}

// maxNodeBytes leaves room for the prefix in an identity.
const maxNodeBytes = rights.MaxIdentityBytes - len(rights.NodePrefix)

// onlyNodes refuses a command that only nodes propose if it came from a client.
func onlyNodes(cmd *wire.Command) *wire.Result {
	if cmd.Caller == nil && cmd.SessionId == 0 {
		return nil
	}
	return answer(wire.Status_PERMISSION_DENIED, fmt.Sprintf("only nodes propose %T", cmd.Op))
}

// author returns who a record names: the caller, or the node that does this by itself.
func (m *Machine) author() *wire.Caller {
	if m.node != "" {
		return &wire.Caller{Identity: rights.NodePrefix + m.node}
	}
	return callerOf(m.caller)
}
