package read

import (
	"fmt"
	"slices"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// WhoAmI returns the caller, its roles and what they allow.
func (r *View) WhoAmI() *wire.WhoAmIResponse {
	policy := r.source.Fork().Access().Rights()
	locks, cluster := policy.Grants(r.caller.Identity()).Rules()
	return &wire.WhoAmIResponse{
		Caller: r.caller.Origin(), Roles: policy.RolesOf(r.caller.Identity()), HasPolicy: policy != nil, Locks: locks, Cluster: cluster,
	}
}

// GetPolicy returns the policy from the applied state.
func (r *View) GetPolicy() *wire.GetPolicyResponse {
	access := r.source.Fork().Access()
	policy, revision := access.Policy()
	return &wire.GetPolicyResponse{Policy: policy, Revision: revision, Certified: access.Certified()}
}

// ListTokens returns the tokens from the applied state.
func (r *View) ListTokens() *wire.ListTokensResponse {
	machine := r.source.Fork()
	return &wire.ListTokensResponse{Tokens: machine.Access().Tokens(), Revision: machine.Revision()}
}

// TestPolicy explains what the present policy, or the one in the request, allows an identity.
func (r *View) TestPolicy(req *wire.TestPolicyRequest) (*wire.TestPolicyResponse, *wire.Result) {
	policy, refused := r.tested(req)
	if refused != nil {
		return nil, refused
	}
	if policy == nil {
		return &wire.TestPolicyResponse{Allowed: true, Reason: "the cluster has no policy: everything is allowed"}, nil
	}
	if rule, ok := policy.Why(req.GetIdentity(), req.GetVerb(), req.GetLock()); ok {
		return &wire.TestPolicyResponse{Allowed: true, Reason: fmt.Sprintf("the binding of %q gives the role %q, which has %v on %s", rule.Binding, rule.Role, req.GetVerb(), rule.On)}, nil
	}
	denied := fsm.Denied(req.GetIdentity(), req.GetVerb(), req.GetLock()).GetMessage()
	if roles := policy.RolesOf(req.GetIdentity()); len(roles) > 0 {
		denied += fmt.Sprintf("; its roles are %q", roles)
	}
	return &wire.TestPolicyResponse{Reason: denied}, nil
}

// tested returns the policy to test, after checking the question.
func (r *View) tested(req *wire.TestPolicyRequest) (*rights.Policy, *wire.Result) {
	if err := validQuestion(req); err != nil {
		return nil, failure(wire.Status_INVALID_ARGUMENT, err.Error())
	}
	if req.GetPolicy() == nil {
		return r.source.Fork().Access().Rights(), nil
	}
	policy, err := rights.Compile(req.GetPolicy())
	if err != nil {
		return nil, failure(wire.Status_INVALID_ARGUMENT, err.Error())
	}
	return policy, nil
}

func validQuestion(req *wire.TestPolicyRequest) error {
	if err := rights.ValidIdentity(req.GetIdentity()); err != nil {
		return err
	}
	switch v := req.GetVerb(); {
	case slices.Contains(rights.LockVerbs(), v):
		return wire.ValidName(req.GetLock())
	case !slices.Contains(rights.ClusterVerbs(), v):
		return fmt.Errorf("the verb is %v: give one of %v or %v", v, rights.LockVerbs(), rights.ClusterVerbs())
	case req.GetLock() != "":
		return fmt.Errorf("%v is a verb on the cluster: give no lock", v)
	}
	return nil
}
