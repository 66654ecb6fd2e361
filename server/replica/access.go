package replica

import (
	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Access returns who may do what, as applied on this node. It is immutable, and another one after each change.
func (r *Replica) Access() *fsm.Access { return r.machine.Access() }

// CheckChange refuses a change of the policy or the tokens that this cluster cannot have. It depends on how the nodes
// are configured, which the state machine does not know.
func (r *Replica) CheckChange(cmd *wire.Command) *wire.Result {
	if refusal := r.checkPolicy(cmd.GetSetPolicy().GetPolicy()); refusal != nil || r.cfg.ClientCertificates {
		return refusal
	}
	return access.CheckAdministrators(r.Access(), cmd)
}

// checkInForce returns status.ErrPrecondition if the cluster, with new members at these addresses, cannot have the policy
// that is in force.
func (r *Replica) checkInForce(added ...string) error {
	policy, _ := r.Access().Policy()
	if refusal := r.checkPolicy(policy, added...); refusal != nil {
		return status.Err(refusal)
	}
	return nil
}

// checkPolicy refuses a policy in a cluster whose nodes do not authenticate each other: anybody who reaches a peer
// port could act there as any identity. Clusters on loopback are exempt. added are the peer addresses of new members.
func (r *Replica) checkPolicy(policy *wire.Policy, added ...string) *wire.Result {
	if policy == nil || r.cfg.PeerTLS != nil {
		return nil
	}
	r.machine.View(func(m *fsm.Machine) {
		for _, member := range m.Members() {
			added = append(added, member.GetPeerAddr())
		}
	})
	return access.CheckPeerPorts(added)
}
