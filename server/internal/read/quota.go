package read

import (
	"cmp"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// GetQuota returns how much of its quotas one identity uses, or a page of all.
func (r *View) GetQuota(req *wire.GetQuotaRequest) (*wire.GetQuotaResponse, *wire.Result) {
	last, refused := begin(quotaListing, "", req.GetPageToken(), req.GetPageSize())
	if refused != nil {
		return nil, refused
	}
	machine, identity := r.source.Fork(), cmp.Or(req.GetIdentity(), r.caller.Identity())
	if req.GetAll() {
		if req.GetIdentity() != "" {
			return nil, failure(wire.Status_INVALID_ARGUMENT, "all and identity exclude each other: give one of them")
		}
		return fit(r.limit, orDefault(req.GetPageSize(), defaultPage), func(size uint32) *wire.GetQuotaResponse {
			return r.allQuotas(machine, last, int(size))
		})
	}
	if err := rights.ValidIdentity(identity); err != nil {
		return nil, failure(wire.Status_INVALID_ARGUMENT, err.Error())
	}
	used, quota := machine.QuotaOf(identity)
	return &wire.GetQuotaResponse{Quotas: []*wire.QuotaStatus{r.quotaStatus(identity, used, quota)}, Revision: machine.Revision()}, nil
}

func (r *View) allQuotas(machine *fsm.Machine, last string, size int) *wire.GetQuotaResponse {
	resp := &wire.GetQuotaResponse{Revision: machine.Revision()}
	if last == "" {
		machine.EachPrefix(func(claims uint64, q *wire.Quota) {
			resp.Quotas = append(resp.Quotas, &wire.QuotaStatus{Prefix: q.Prefix, Quota: q.Prefix, Uses: []*wire.QuotaUse{
				{Kind: wire.QuotaUse_CLAIMS, Used: claims, Limit: q.Claims},
			}})
		})
	}
	n := 0
	machine.EachAccount(last, func(identity string, used fsm.Used, q *wire.Quota) bool {
		if n == size {
			resp.NextPageToken = pageToken(quotaListing, "", last)
			return false
		}
		n, last = n+1, identity
		resp.Quotas = append(resp.Quotas, r.quotaStatus(identity, used, q))
		return true
	})
	return resp
}

// quotaStatus adds what the identity uses of this node.
func (r *View) quotaStatus(identity string, used fsm.Used, q *wire.Quota) *wire.QuotaStatus {
	here := r.quotas.Use(identity)
	return &wire.QuotaStatus{Identity: identity, Quota: q.GetIdentity(), Uses: []*wire.QuotaUse{
		{Kind: wire.QuotaUse_SESSIONS, Used: used.Sessions, Limit: q.GetSessions()},
		{Kind: wire.QuotaUse_CLAIMS, Used: used.Claims, Limit: q.GetClaims()},
		{Kind: wire.QuotaUse_BYTES, Used: used.Bytes, Limit: q.GetBytes()},
		{Kind: wire.QuotaUse_WATCHES, Used: here.Watches, Limit: q.GetWatches()},
		{Kind: wire.QuotaUse_CONNECTIONS, Used: here.Connections, Limit: q.GetConnections()},
		{Kind: wire.QuotaUse_REQUESTS_PER_SECOND, Used: here.Requests, Limit: q.GetRequestsPerSecond()},
	}}
}
