package read

import (
	"cmp"
	"slices"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// GetQuota returns how much of its quotas one identity uses, with those of prefixes below which it may lock, or a page of
// all.
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
	resp := &wire.GetQuotaResponse{Quotas: []*wire.QuotaStatus{r.quotaStatus(machine, identity)}, Revision: machine.Revision()}
	grants := machine.Access().Rights().Grants(identity)
	machine.EachPrefix(func(claims uint64, q *wire.Quota) {
		if grants.OnSomeBelow(q.Prefix, wire.Verb_LOCK) {
			resp.Quotas = append(resp.Quotas, prefixStatus(claims, q))
		}
	})
	return resp, nil
}

// allQuotas returns the identities with sessions and those that use this node, in one order.
func (r *View) allQuotas(machine *fsm.Machine, last string, size int) *wire.GetQuotaResponse {
	resp := &wire.GetQuotaResponse{Revision: machine.Revision()}
	if last == "" {
		machine.EachPrefix(func(claims uint64, q *wire.Quota) { resp.Quotas = append(resp.Quotas, prefixStatus(claims, q)) })
	}
	names, n := r.quotas.Users(last), 0
	machine.EachAccount(last, func(identity string, _ fsm.Used, _ *wire.Quota) bool {
		names, n = append(names, identity), n+1
		return n <= size
	})
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > size {
		names = names[:size]
		resp.NextPageToken = pageToken(quotaListing, "", names[size-1])
	}
	for _, identity := range names {
		resp.Quotas = append(resp.Quotas, r.quotaStatus(machine, identity))
	}
	return resp
}

func prefixStatus(claims uint64, q *wire.Quota) *wire.QuotaStatus {
	return &wire.QuotaStatus{Prefix: q.Prefix, Quota: q.Prefix, Uses: []*wire.QuotaUse{{Kind: wire.QuotaUse_CLAIMS, Used: claims, Limit: q.Claims}}}
}

// quotaStatus returns what the identity uses of the cluster and of this node.
func (r *View) quotaStatus(machine *fsm.Machine, identity string) *wire.QuotaStatus {
	used, q := machine.QuotaOf(identity)
	here, node := r.quotas.Use(identity), r.quotas.Name()
	return &wire.QuotaStatus{Identity: identity, Quota: q.GetIdentity(), Uses: []*wire.QuotaUse{
		{Kind: wire.QuotaUse_SESSIONS, Used: used.Sessions, Limit: q.GetSessions()},
		{Kind: wire.QuotaUse_CLAIMS, Used: used.Claims, Limit: q.GetClaims()},
		{Kind: wire.QuotaUse_BYTES, Used: used.Bytes, Limit: q.GetBytes()},
		{Kind: wire.QuotaUse_WATCHES, Used: here.Watches, Limit: q.GetWatches(), Node: node},
		{Kind: wire.QuotaUse_CONNECTIONS, Used: here.Connections, Limit: q.GetConnections(), Node: node},
		{Kind: wire.QuotaUse_REQUESTS_PER_SECOND, Used: here.Requests, Limit: q.GetRequestsPerSecond(), Node: node},
	}}
}
