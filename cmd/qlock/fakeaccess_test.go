//go:build unix

package main

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// fakeAccess are the answers of a fake service about who may do what.
type fakeAccess struct {
	whoAmI func(*wire.WhoAmIRequest) (*wire.WhoAmIResponse, error)
	quota  func(*wire.GetQuotaRequest) (*wire.GetQuotaResponse, error)
	// quotaAt is the answer of the node whose HTTP port is at addr.
	quotaAt func(addr string, req *wire.GetQuotaRequest) (*wire.GetQuotaResponse, error)
	policy  func(*wire.GetPolicyRequest) (*wire.GetPolicyResponse, error)
	test    func(*wire.TestPolicyRequest) (*wire.TestPolicyResponse, error)
	tokens  func(*wire.ListTokensRequest) (*wire.ListTokensResponse, error)
	set     func(*wire.SetPolicy) (*wire.OperatorResponse, error)
	create  func(*wire.CreateTokenRequest) (*wire.CreateTokenResponse, error)
	revoke  func(*wire.RevokeToken) (*wire.OperatorResponse, error)
}

// failingAccess fails every request.
func failingAccess(err error) fakeAccess {
	return fakeAccess{
		whoAmI:  func(*wire.WhoAmIRequest) (*wire.WhoAmIResponse, error) { return nil, err },
		quota:   func(*wire.GetQuotaRequest) (*wire.GetQuotaResponse, error) { return nil, err },
		quotaAt: func(string, *wire.GetQuotaRequest) (*wire.GetQuotaResponse, error) { return nil, err },
		policy:  func(*wire.GetPolicyRequest) (*wire.GetPolicyResponse, error) { return nil, err },
		test:    func(*wire.TestPolicyRequest) (*wire.TestPolicyResponse, error) { return nil, err },
		tokens:  func(*wire.ListTokensRequest) (*wire.ListTokensResponse, error) { return nil, err },
		set:     func(*wire.SetPolicy) (*wire.OperatorResponse, error) { return nil, err },
		create:  func(*wire.CreateTokenRequest) (*wire.CreateTokenResponse, error) { return nil, err },
		revoke:  func(*wire.RevokeToken) (*wire.OperatorResponse, error) { return nil, err },
	}
}

// examplePolicy uses every part of a policy.
func examplePolicy() *wire.Policy {
	return &wire.Policy{
		Roles: []*wire.Role{
			{Name: "deploy", Locks: []*wire.LockRule{
				{Prefix: "orders/", Verbs: []wire.Verb{wire.Verb_READ, wire.Verb_LOCK}},
				{Name: "release", Verbs: []wire.Verb{wire.Verb_OPERATE}},
			}},
			{Name: "auditor", Cluster: []wire.Verb{wire.Verb_AUDIT, wire.Verb_BACKUP}},
		},
		Bindings: []*wire.Binding{
			{Identity: "alice", Roles: []string{"admin"}},
			{Identity: "ci-*", Roles: []string{"deploy", "reader"}},
			{Identity: "bob", Roles: []string{"auditor"}},
		},
		Quotas: []*wire.Quota{
			{Identity: "ci-*", Sessions: 100, Claims: 1_000, Bytes: 1 << 20, Watches: 4, Connections: 20, RequestsPerSecond: 500},
			{Prefix: "orders/", Claims: 5_000},
		},
	}
}

// answeringAccess has an example of everything.
func answeringAccess() fakeAccess {
	token := &wire.TokenInfo{Id: "3f9c0a71b2d4", Name: "ci", CreatedBy: "alice", CreatedUnixMs: 1_700_000_000_000, EndsUnixMs: 1_700_086_400_000}
	return fakeAccess{
		quota: func(req *wire.GetQuotaRequest) (*wire.GetQuotaResponse, error) {
			if req.GetPageToken() == "" && req.GetAll() {
				return &wire.GetQuotaResponse{NextPageToken: "next", Revision: 7, Quotas: []*wire.QuotaStatus{
					{Prefix: "jobs/", Quota: "jobs/", Uses: []*wire.QuotaUse{{Kind: wire.QuotaUse_CLAIMS, Used: 90, Limit: 100}}},
				}}, nil
			}
			return &wire.GetQuotaResponse{Revision: 7, Quotas: []*wire.QuotaStatus{{Identity: "team-a", Quota: "team-*", Uses: []*wire.QuotaUse{
				{Kind: wire.QuotaUse_SESSIONS, Used: 3}, {Kind: wire.QuotaUse_CLAIMS, Used: 80, Limit: 100}, {Kind: wire.QuotaUse_REQUESTS_PER_SECOND, Used: 50, Limit: 50, Node: "n2"},
			}}}}, nil
		},
		quotaAt: answerOfN1,
		whoAmI: always[*wire.WhoAmIRequest](&wire.WhoAmIResponse{
			Caller: &wire.Caller{Identity: "alice", Credential: "certificate 5f01", Address: "10.0.0.9:40112"}, Roles: []string{"admin", "reader"}, HasPolicy: true,
			Locks: []*wire.LockRule{
				{Prefix: "/", Verbs: rights.LockVerbs()}, {Prefix: "orders/", Verbs: []wire.Verb{wire.Verb_READ}}, {Name: "jobs/nightly", Verbs: []wire.Verb{wire.Verb_LOCK}},
			},
			Cluster: rights.ClusterVerbs(),
		}),
		policy: always[*wire.GetPolicyRequest](&wire.GetPolicyResponse{Policy: examplePolicy(), Revision: 412}),
		test:   always[*wire.TestPolicyRequest](&wire.TestPolicyResponse{Allowed: true, Reason: "the binding of alice gives role admin"}),
		tokens: always[*wire.ListTokensRequest](&wire.ListTokensResponse{Tokens: []*wire.TokenInfo{token, {Id: "b21f00e7aa90", Name: "cron", CreatedUnixMs: 1_700_000_500_000}}, Revision: 413}),
		set:    always[*wire.SetPolicy](&wire.OperatorResponse{Status: wire.Status_OK, Revision: 420}),
		create: func(req *wire.CreateTokenRequest) (*wire.CreateTokenResponse, error) {
			about := proto.CloneOf(token)
			if about.Name = req.GetName(); req.GetTtlMs() == 0 {
				about.EndsUnixMs = 0
			}
			return &wire.CreateTokenResponse{Token: about}, nil
		},
		revoke: always[*wire.RevokeToken](&wire.OperatorResponse{Status: wire.Status_OK, Revision: 421}),
	}
}

// answerOfN1 is what the node n1 counts: also an identity without sessions.
func answerOfN1(addr string, req *wire.GetQuotaRequest) (*wire.GetQuotaResponse, error) {
	if addr != "10.0.0.1:7402" || !req.GetStale() {
		return nil, fmt.Errorf("%s is asked for %v", addr, req)
	}
	team := []*wire.QuotaStatus{{Identity: "team-a", Quota: "team-*", Uses: []*wire.QuotaUse{
		{Kind: wire.QuotaUse_SESSIONS, Used: 2}, {Kind: wire.QuotaUse_CONNECTIONS, Used: 3, Limit: 3, Node: "n1"},
	}}}
	switch {
	case !req.GetAll():
		return &wire.GetQuotaResponse{Quotas: team}, nil
	case req.GetPageToken() == "":
		return &wire.GetQuotaResponse{NextPageToken: "next", Quotas: []*wire.QuotaStatus{
			{Prefix: "jobs/", Uses: []*wire.QuotaUse{{Kind: wire.QuotaUse_CLAIMS, Used: 89, Limit: 100}}},
			{Identity: "cron", Quota: "cron", Uses: []*wire.QuotaUse{{Kind: wire.QuotaUse_WATCHES, Used: 2, Limit: 2, Node: "n1"}}},
		}}, nil
	}
	return &wire.GetQuotaResponse{Quotas: team}, nil
}

func (f *fakeService) WhoAmI(ctx context.Context, req *wire.WhoAmIRequest) (*wire.WhoAmIResponse, error) {
	return answer(ctx, f, f.access.whoAmI, req)
}

func (f *fakeService) GetQuota(ctx context.Context, req *wire.GetQuotaRequest) (*wire.GetQuotaResponse, error) {
	return answer(ctx, f, f.access.quota, req)
}

func (f *fakeService) GetQuotaAt(ctx context.Context, addr string, req *wire.GetQuotaRequest) (*wire.GetQuotaResponse, error) {
	return answer(ctx, f, func(req *wire.GetQuotaRequest) (*wire.GetQuotaResponse, error) { return f.access.quotaAt(addr, req) }, req)
}

func (h hostileService) GetQuotaAt(ctx context.Context, addr string, req *wire.GetQuotaRequest) (*wire.GetQuotaResponse, error) {
	return replaceTexts(h.fakeService.GetQuotaAt(ctx, addr, req))
}

func (h hostileService) GetQuota(ctx context.Context, req *wire.GetQuotaRequest) (*wire.GetQuotaResponse, error) {
	return replaceTexts(h.fakeService.GetQuota(ctx, req))
}

func (f *fakeService) GetPolicy(ctx context.Context, req *wire.GetPolicyRequest) (*wire.GetPolicyResponse, error) {
	return answer(ctx, f, f.access.policy, req)
}

func (f *fakeService) TestPolicy(ctx context.Context, req *wire.TestPolicyRequest) (*wire.TestPolicyResponse, error) {
	return answer(ctx, f, f.access.test, req)
}

func (f *fakeService) ListTokens(ctx context.Context, req *wire.ListTokensRequest) (*wire.ListTokensResponse, error) {
	return answer(ctx, f, f.access.tokens, req)
}

func (f *fakeService) SetPolicy(ctx context.Context, req *wire.SetPolicy) (*wire.OperatorResponse, error) {
	return answer(ctx, f, f.access.set, req)
}

func (f *fakeService) CreateToken(ctx context.Context, req *wire.CreateTokenRequest) (*wire.CreateTokenResponse, error) {
	return answer(ctx, f, f.access.create, req)
}

func (f *fakeService) RevokeToken(ctx context.Context, req *wire.RevokeToken) (*wire.OperatorResponse, error) {
	return answer(ctx, f, f.access.revoke, req)
}

func (h hostileService) WhoAmI(ctx context.Context, req *wire.WhoAmIRequest) (*wire.WhoAmIResponse, error) {
	return replaceTexts(h.fakeService.WhoAmI(ctx, req))
}

func (h hostileService) GetPolicy(ctx context.Context, req *wire.GetPolicyRequest) (*wire.GetPolicyResponse, error) {
	return replaceTexts(h.fakeService.GetPolicy(ctx, req))
}

func (h hostileService) TestPolicy(ctx context.Context, req *wire.TestPolicyRequest) (*wire.TestPolicyResponse, error) {
	return replaceTexts(h.fakeService.TestPolicy(ctx, req))
}

func (h hostileService) ListTokens(ctx context.Context, req *wire.ListTokensRequest) (*wire.ListTokensResponse, error) {
	return replaceTexts(h.fakeService.ListTokens(ctx, req))
}

func (h hostileService) CreateToken(ctx context.Context, req *wire.CreateTokenRequest) (*wire.CreateTokenResponse, error) {
	return replaceTexts(h.fakeService.CreateToken(ctx, req))
}
