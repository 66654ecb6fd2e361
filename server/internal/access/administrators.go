package access

import (
	"fmt"
	"slices"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// CheckAdministrators refuses a change of the policy or the tokens after which only client certificates could prove the
// identities that may change the policy. It is for nodes that accept no client certificates. A caller who has
// presented one shows that another node accepts them.
func CheckAdministrators(now *fsm.Access, cmd *wire.Command) *wire.Result {
	if cmd.GetCaller().Certified() {
		return nil
	}
	administrators, tokens := afterChange(now, cmd)
	provable := func(administrator string) bool {
		return administrator == identity.Anonymous || slices.ContainsFunc(tokens, func(t *wire.TokenInfo) bool {
			return t.GetName() == administrator && t.GetEndsUnixMs() == 0
		})
	}
	if len(administrators) == 0 || slices.ContainsFunc(administrators, provable) {
		return nil
	}
	return &wire.Result{Status: wire.Status_FAILED_PRECONDITION, Message: fmt.Sprintf("nobody could change the policy any more: "+
		"%.80q has no token that does not expire, and this node accepts no client certificates: create such a token first "+
		"(qlock token create), or start the nodes with --tls-cert, --tls-key and --tls-ca", administrators[0])}
}

// afterChange returns the identities that could change the policy after a command, and the tokens. There are no
// identities if the command does not concern them, or if the state machine refuses it anyway.
func afterChange(now *fsm.Access, cmd *wire.Command) (administrators []string, tokens []*wire.TokenInfo) {
	switch op := cmd.GetOp().(type) {
	case *wire.Command_SetPolicy:
		if next, err := rights.Compile(op.SetPolicy.GetPolicy()); err == nil {
			return next.Administrators(), now.Tokens()
		}
	case *wire.Command_RevokeToken:
		revoked, administrators := now.TokenByID(op.RevokeToken.GetTokenId()), now.Rights().Administrators()
		if !slices.Contains(administrators, revoked.GetName()) {
			return nil, nil
		}
		return administrators, slices.DeleteFunc(now.Tokens(), func(t *wire.TokenInfo) bool { return t == revoked })
	}
	return nil, nil
}

// CheckPeerPorts refuses a policy in a cluster whose peer ports, at these addresses, have no TLS, unless all are on
// loopback.
func CheckPeerPorts(addresses []string) *wire.Result {
	exposed := slices.IndexFunc(addresses, func(address string) bool { return !IsLoopback(address) })
	if exposed < 0 {
		return nil
	}
	return &wire.Result{Status: wire.Status_FAILED_PRECONDITION, Message: "a policy requires TLS between the nodes, and the peer port " + addresses[exposed] +
		" has none: start every node with --peer-tls-cert, --peer-tls-key and --peer-tls-ca (qlock tls init makes the files)"}
}
