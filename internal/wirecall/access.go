package wirecall

import (
	"context"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// WhoAmI returns the identity that the cluster has verified, and its roles.
func (c Calls) WhoAmI(ctx context.Context, req *wire.WhoAmIRequest) (*wire.WhoAmIResponse, error) {
	resp, err := Do(ctx, c.client, Read, &wire.Request{Body: &wire.Request_WhoAmI{WhoAmI: req}})
	return resp.GetWhoAmI(), err
}

// GetQuota returns how much of its quotas an identity uses.
func (c Calls) GetQuota(ctx context.Context, req *wire.GetQuotaRequest) (*wire.GetQuotaResponse, error) {
	resp, err := Do(ctx, c.client, reading(req.GetStale()), &wire.Request{Body: &wire.Request_GetQuota{GetQuota: req}})
	return resp.GetGetQuota(), err
}

// GetPolicy returns the policy.
func (c Calls) GetPolicy(ctx context.Context, req *wire.GetPolicyRequest) (*wire.GetPolicyResponse, error) {
	resp, err := Do(ctx, c.client, reading(req.GetStale()), &wire.Request{Body: &wire.Request_GetPolicy{GetPolicy: req}})
	return resp.GetGetPolicy(), err
}

// SetPolicy replaces the policy. It returns client.ErrFailedPrecondition if the policy has changed since
// req.ExpectedRevision, or if nobody could change the new one. Other errors are those of AddMember.
func (c Calls) SetPolicy(ctx context.Context, req *wire.SetPolicy) (*wire.OperatorResponse, error) {
	return c.operate(ctx, &wire.Request{Body: &wire.Request_SetPolicy{SetPolicy: req}})
}

// TestPolicy returns what the policy, or another one, allows to an identity.
func (c Calls) TestPolicy(ctx context.Context, req *wire.TestPolicyRequest) (*wire.TestPolicyResponse, error) {
	resp, err := Do(ctx, c.client, reading(req.GetStale()), &wire.Request{Body: &wire.Request_TestPolicy{TestPolicy: req}})
	return resp.GetTestPolicy(), err
}

// CreateToken makes a token. It is repeated, and the repetition makes no second token. If ctx ends first, the error
// matches client.ErrUncertain.
func (c Calls) CreateToken(ctx context.Context, req *wire.CreateTokenRequest) (*wire.CreateTokenResponse, error) {
	resp, err := Do(ctx, c.client, Repeat, &wire.Request{Body: &wire.Request_CreateToken{CreateToken: req}})
	return resp.GetCreateToken(), err
}

// ListTokens lists the tokens by id.
func (c Calls) ListTokens(ctx context.Context, req *wire.ListTokensRequest) (*wire.ListTokensResponse, error) {
	resp, err := Do(ctx, c.client, reading(req.GetStale()), &wire.Request{Body: &wire.Request_ListTokens{ListTokens: req}})
	return resp.GetListTokens(), err
}

// RevokeToken withdraws a token. It returns client.ErrNotFound if there is no such token, and
// client.ErrFailedPrecondition if nobody could change the policy without it. Other errors are those of AddMember.
func (c Calls) RevokeToken(ctx context.Context, req *wire.RevokeToken) (*wire.OperatorResponse, error) {
	return c.operate(ctx, &wire.Request{Body: &wire.Request_RevokeToken{RevokeToken: req}})
}
