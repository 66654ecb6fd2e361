package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// quotaUses is what identities use of the cluster and of each node.
type quotaUses struct {
	all []*wire.QuotaStatus
	// unknown are the nodes whose counts are missing, in the order of the members.
	unknown []unknownNode
}

// unknownNode is a node whose counts are missing, and why.
type unknownNode struct {
	Node   string `json:"node"`
	Reason string `json:"reason"`
}

// MarshalJSON encodes no quotas as [].
func (u *quotaUses) MarshalJSON() ([]byte, error) {
	quotas := make([]one, len(u.all))
	for i, q := range u.all {
		quotas[i] = one{q}
	}
	return json.Marshal(map[string]any{"quotas": quotas, "unknown": append([]unknownNode{}, u.unknown...)})
}

// GetQuotaAt asks the node whose HTTP port is at addr.
func (c cluster) GetQuotaAt(ctx context.Context, addr string, req *wire.GetQuotaRequest) (*wire.GetQuotaResponse, error) {
	httpClient, base, err := c.httpClient(addr)
	if err != nil {
		return nil, err
	}
	defer httpClient.CloseIdleConnections()
	answer, err := wireconnect.NewAccessServiceClient(httpClient, base).GetQuota(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return answer.Msg, nil
}

// nodeTimeout bounds the wait for what one node counts.
const nodeTimeout = 3 * time.Second

// collectUses asks the leader, which knows what the cluster counts, and then each other node for what that one counts.
func collectUses(ctx context.Context, svc service, req *wire.GetQuotaRequest) (*quotaUses, error) {
	led, err := collectQuotas(ctx, req, svc.GetQuota)
	if err != nil {
		return nil, err
	}
	status, err := svc.Status(ctx, &wire.StatusRequest{})
	if err != nil {
		return nil, err
	}
	uses, answered := &quotaUses{all: led}, counter(led)
	others := slices.DeleteFunc(slices.Clone(status.GetNodes()), func(n *wire.NodeStatus) bool { return n.GetId() == answered })
	counted, missing := make([][]*wire.QuotaStatus, len(others)), make([]string, len(others))
	var asking sync.WaitGroup
	for i, node := range others {
		asking.Go(func() { counted[i], missing[i] = countedAt(ctx, svc, node, req) })
	}
	asking.Wait()
	for i, node := range others {
		if missing[i] != "" {
			uses.unknown = append(uses.unknown, unknownNode{node.GetId(), missing[i]})
		}
		uses.add(counted[i])
	}
	uses.sort(req.GetAll())
	return uses, nil
}

// counter returns the node that has counted what is in an answer; empty if it is unknown.
func counter(quotas []*wire.QuotaStatus) string {
	for _, q := range quotas {
		for _, use := range q.GetUses() {
			if use.GetNode() != "" {
				return use.GetNode()
			}
		}
	}
	return ""
}

// countedAt returns the answer of one node, or why there is none.
func countedAt(ctx context.Context, svc service, node *wire.NodeStatus, req *wire.GetQuotaRequest) (counted []*wire.QuotaStatus, missing string) {
	switch {
	case !node.GetReachable():
		return nil, "the leader does not reach it"
	case node.GetHttpAddr() == "":
		return nil, "it advertises no HTTP port; start it with --http-addr"
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	ask := &wire.GetQuotaRequest{Identity: req.GetIdentity(), All: req.GetAll(), Stale: true}
	counted, err := collectQuotas(ctx, ask, func(ctx context.Context, req *wire.GetQuotaRequest) (*wire.GetQuotaResponse, error) {
		return svc.GetQuotaAt(ctx, reachableHost(node), req)
	})
	if err != nil {
		return nil, said(err)
	}
	return counted, ""
}

// add adds what a node counts of each identity. An identity that uses only that node has no sessions at the leader.
func (u *quotaUses) add(counted []*wire.QuotaStatus) {
	for _, q := range counted {
		if q.GetPrefix() != "" {
			continue
		}
		at := slices.IndexFunc(u.all, func(known *wire.QuotaStatus) bool {
			return known.GetPrefix() == "" && known.GetIdentity() == q.GetIdentity()
		})
		if at < 0 {
			u.all = append(u.all, q)
			continue
		}
		for _, use := range q.GetUses() {
			if use.GetNode() != "" {
				u.all[at].Uses = append(u.all[at].Uses, use)
			}
		}
	}
}

// sort orders what was added. One identity comes before its prefixes, but prefixes before all
// identities.
func (u *quotaUses) sort(all bool) {
	slices.SortStableFunc(u.all, func(a, b *wire.QuotaStatus) int {
		if !all || a.GetPrefix() != "" || b.GetPrefix() != "" {
			return 0
		}
		return strings.Compare(a.GetIdentity(), b.GetIdentity())
	})
	for _, q := range u.all {
		slices.SortStableFunc(q.Uses, func(a, b *wire.QuotaUse) int { return strings.Compare(a.GetNode(), b.GetNode()) })
	}
}
