package admin

import (
	"context"
	"iter"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// QuotaKind is what a limit of a quota counts.
type QuotaKind int32

// The kinds are the limits of a [Quota].
const (
	QuotaSessions          QuotaKind = 1
	QuotaClaims            QuotaKind = 2
	QuotaBytes             QuotaKind = 3
	QuotaWatches           QuotaKind = 4
	QuotaConnections       QuotaKind = 5
	QuotaRequestsPerSecond QuotaKind = 6
)

// String returns the name of the kind in upper case, such as CLAIMS.
func (k QuotaKind) String() string { return wire.QuotaUse_Kind(k).String() }

// QuotaUse is how much of a limit is used.
type QuotaUse struct {
	Kind QuotaKind
	Used uint64
	// Limit is 0 if there is none.
	Limit uint64
}

// QuotaStatus is what an identity uses, or the claims of all identities below a prefix.
type QuotaStatus struct {
	// Identity is empty for the quota of a prefix.
	Identity string
	Prefix   string
	// Quota is the identity, the pattern or the prefix of the quota that applies; empty if none does.
	Quota string
	// Uses has each kind once; for a prefix only claims.
	Uses []QuotaUse
}

// Quota returns how much of its quota an identity uses; the empty one stands for this client's. Watches, connections
// and requests are those of the answering node: the leader, unless [Stale] is given. Another identity than this
// client's requires a role with audit or policy.
func (c *Client) Quota(ctx context.Context, identity string, opts ...ReadOption) (QuotaStatus, error) {
	answer, err := c.calls.GetQuota(ctx, &wire.GetQuotaRequest{Identity: identity, Stale: stale(opts)})
	if err != nil || len(answer.GetQuotas()) == 0 {
		return QuotaStatus{}, err
	}
	return convert[QuotaStatus](answer.GetQuotas()[0]), nil
}

// Quotas returns every prefix with a quota, and then every identity with sessions, each ordered by name, like Locks.
// It requires a role with audit or policy.
func (c *Client) Quotas(ctx context.Context, opts ...ReadOption) iter.Seq2[QuotaStatus, error] {
	return pages(func(token string) ([]QuotaStatus, string, error) {
		page, err := c.calls.GetQuota(ctx, &wire.GetQuotaRequest{All: true, PageToken: token, Stale: stale(opts)})
		return convertAll[QuotaStatus](page.GetQuotas()), page.GetNextPageToken(), err
	})
}
