package read

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// bounded returns a node whose policy has quotas of prefixes and lets ann lock below a/. ben has a session, and ann and
// dan have connections.
func bounded(t *testing.T) (*source, *quota.Node) {
	t.Helper()
	s := &source{machine: fsm.New(fsm.Level)}
	s.apply(t, 0, &wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c", Settings: fsm.DefaultSettings()}}})
	s.apply(t, 0, &wire.Command{Caller: &wire.Caller{Identity: "ben"}, Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: make([]byte, 32)}}})
	set := s.apply(t, 0, &wire.Command{Caller: &wire.Caller{Identity: "root"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Reason: "test", Policy: &wire.Policy{
		Roles: []*wire.Role{{Name: "team", Locks: []*wire.LockRule{
			{Prefix: "a/", Verbs: []wire.Verb{wire.Verb_LOCK}}, {Prefix: "b/", Verbs: []wire.Verb{wire.Verb_READ}},
		}}},
		Bindings: []*wire.Binding{{Identity: "root", Roles: []string{"admin"}}, {Identity: "ann", Roles: []string{"team"}}},
		Quotas:   []*wire.Quota{{Prefix: "a/", Claims: 5}, {Prefix: "b/", Claims: 5}, {Identity: "ann", Connections: 2}},
	}}}})
	if set.GetStatus() != wire.Status_OK {
		t.Fatal(set)
	}
	node := quota.New(s, 10)
	node.ID = "n1"
	for _, identity := range []string{"ann", "dan"} {
		if _, refused := node.Open(identity).Connect(node.Pool("max_connections", 10)); refused != nil {
			t.Fatal(refused)
		}
	}
	node.Open("cleo") // uses nothing
	return s, node
}

// whose returns what the statuses are about, in their order.
func whose(statuses []*wire.QuotaStatus) string {
	var all []string
	for _, q := range statuses {
		all = append(all, q.GetIdentity()+q.GetPrefix())
	}
	return strings.Join(all, " ")
}

// TestQuotasOfEverybody verifies that the list has the identities with sessions and those that only use this node, once
// each and in order, whatever the size of a page.
func TestQuotasOfEverybody(t *testing.T) {
	s, node := bounded(t)
	if _, refused := node.Open("ben").Connect(node.Pool("max_connections", 10)); refused != nil {
		t.Fatal(refused)
	}
	view := New(s, 1<<20, node).As(access.Node(s, "n1"))
	for size := range uint32(5) {
		req, all := &wire.GetQuotaRequest{All: true, PageSize: size}, []*wire.QuotaStatus(nil)
		for pages := 0; pages == 0 || req.PageToken != ""; pages++ {
			page, refused := view.GetQuota(req)
			if refused != nil || pages > 5 {
				t.Fatalf("page %d: %v", pages, refused)
			}
			all, req.PageToken = append(all, page.GetQuotas()...), page.GetNextPageToken()
		}
		if got := whose(all); got != "a/ b/ ann ben dan" {
			t.Errorf("pages of %d: %s", size, got)
		}
	}
}

// TestQuotasOfPrefixesThatBind verifies that an identity is shown its own quota and those of the prefixes below which it
// may lock, and not the others.
func TestQuotasOfPrefixesThatBind(t *testing.T) {
	s, node := bounded(t)
	view := New(s, 1<<20, node).As(access.Node(s, "n1"))
	for identity, want := range map[string]string{"ann": "ann a/", "root": "root a/ b/", "dan": "dan"} {
		resp, refused := view.GetQuota(&wire.GetQuotaRequest{Identity: identity})
		if got := whose(resp.GetQuotas()); refused != nil || got != want {
			t.Errorf("%s: %s, %v", identity, got, refused)
		}
	}
	resp, _ := view.GetQuota(&wire.GetQuotaRequest{Identity: "ann"})
	uses := resp.GetQuotas()[0].GetUses()
	at := slices.IndexFunc(uses, func(u *wire.QuotaUse) bool { return u.GetKind() == wire.QuotaUse_CONNECTIONS })
	if uses[0].GetNode() != "" || uses[at].GetNode() != "n1" {
		t.Errorf("counted by %q and %q", uses[0].GetNode(), uses[at].GetNode())
	}
	if got := fmt.Sprint(uses[at].GetUsed(), uses[at].GetLimit(), resp.GetQuotas()[1].GetUses()[0].GetLimit()); got != "1 2 5" {
		t.Errorf("ann uses %s", got)
	}
}
