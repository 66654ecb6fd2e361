package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// policyPlan is a change of the policy before it is made.
type policyPlan struct {
	Revision uint64 `json:"revision,string"`
	// Diff is the unified diff of the YAML forms; empty if nothing changes.
	Diff string `json:"diff"`
	// Gains and Loses are the roles that identities and patterns get and lose.
	Gains []roleChange `json:"gains"`
	Loses []roleChange `json:"loses"`
	// Changes are the roles whose rights change, with the identities and patterns that have them before and after.
	Changes []changedRole `json:"changes"`
	// Warnings are consequences that are easily overlooked.
	Warnings []string `json:"warnings"`

	next *wire.Policy // nil to remove the policy
}

type roleChange struct {
	Identity string   `json:"identity"`
	Roles    []string `json:"roles"`
}

type changedRole struct {
	Role       string   `json:"role"`
	Identities []string `json:"identities"`
}

// planPolicy compares the policy of the cluster with the next one.
func planPolicy(ctx context.Context, svc service, next *wire.Policy, name string) (*policyPlan, error) {
	current, err := svc.GetPolicy(ctx, &wire.GetPolicyRequest{})
	if err != nil {
		return nil, err
	}
	plan := &policyPlan{Revision: current.GetRevision(), next: next, Gains: []roleChange{}, Loses: []roleChange{}, Changes: []changedRole{}, Warnings: []string{}}
	if plan.Diff, err = diffPolicies(current, next, name); err != nil || plan.Diff == "" {
		return plan, err
	}
	if err := plan.compare(current.GetPolicy()); err != nil {
		return nil, err
	}
	if next == nil {
		return plan, nil
	}
	me, err := svc.WhoAmI(ctx, &wire.WhoAmIRequest{})
	if err != nil {
		return plan, nil
	}
	plan.warnCaller(me.GetCaller().GetIdentity())
	tokens, err := svc.ListTokens(ctx, &wire.ListTokensRequest{})
	if err != nil {
		return nil, err
	}
	plan.warnAdministrators(me.GetCaller(), current.GetCertified(), tokens.GetTokens())
	return plan, nil
}

// diffPolicies returns the unified diff of the YAML forms.
func diffPolicies(current *wire.GetPolicyResponse, next *wire.Policy, name string) (string, error) {
	before, err := policyYAML(current.GetPolicy())
	if err != nil {
		return "", err
	}
	after, err := policyYAML(next)
	if err != nil {
		return "", err
	}
	title := fmt.Sprintf("policy at revision %d", current.GetRevision())
	if current.GetPolicy() == nil {
		title = "no policy"
	}
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: slices.Collect(strings.Lines(before)), B: slices.Collect(strings.Lines(after)), FromFile: title, ToFile: printable(name), Context: 3,
	})
}

// compare collects the roles that change hands, and those that change.
func (p *policyPlan) compare(current *wire.Policy) error {
	before, err := compiled(current)
	if err != nil {
		return failf(exitInternal, "the policy of the cluster: %w", err)
	}
	after, err := compiled(p.next)
	if err != nil {
		return usagef("%w", err)
	}
	switch {
	case current == nil:
		p.Warnings = append(p.Warnings, "there is no policy yet: every client may do everything, and will lose what it has no role for")
	case p.next == nil:
		p.Warnings = append(p.Warnings, "without a policy, every client may do everything")
	}
	if p.next != nil && len(after.Administrators()) == 0 {
		p.Warnings = append(p.Warnings, "the cluster will refuse it: nobody could change it any more; give a role with the verb policy, such as admin, to an identity by its exact name")
	}
	held := map[string][]string{} // identities by role
	for _, identity := range identities(current, p.next) {
		// A pattern has the roles of all patterns that match it: they match whatever it matches.
		had, has := before.RolesOf(identity), after.RolesOf(identity)
		if gained := minus(has, had); len(gained) > 0 {
			p.Gains = append(p.Gains, roleChange{identity, gained})
		}
		if lost := minus(had, has); len(lost) > 0 {
			p.Loses = append(p.Loses, roleChange{identity, lost})
		}
		for _, role := range minus(has, minus(has, had)) {
			held[role] = append(held[role], identity)
		}
	}
	for _, role := range slices.Sorted(maps.Keys(held)) {
		if !proto.Equal(roleNamed(current, role), roleNamed(p.next, role)) {
			p.Changes = append(p.Changes, changedRole{role, held[role]})
		}
	}
	return nil
}

// compiled returns the compiled policy, nil for none.
func compiled(policy *wire.Policy) (*rights.Policy, error) {
	if policy == nil {
		return nil, nil
	}
	return rights.Compile(policy)
}

// identities returns the identities and patterns that are bound in any of the policies, in order.
func identities(policies ...*wire.Policy) (names []string) {
	for _, p := range policies {
		for _, b := range p.GetBindings() {
			names = append(names, b.GetIdentity())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func roleNamed(policy *wire.Policy, name string) *wire.Role {
	for _, role := range policy.GetRoles() {
		if role.GetName() == name {
			return role
		}
	}
	return nil
}

// minus returns the elements of a that are not in b.
func minus(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// warnCaller warns if the caller could not change the policy again.
func (p *policyPlan) warnCaller(me string) {
	after, err := compiled(p.next)
	if err == nil && me != "" && !after.Grants(me).OnCluster(wire.Verb_POLICY) {
		p.Warnings = append(p.Warnings, fmt.Sprintf("you, %s, could not change this policy", me))
	}
}

// warnAdministrators warns if the cluster knows no lasting credential of the policy's administrators: their
// names may be wrong.
func (p *policyPlan) warnAdministrators(me *wire.Caller, certified []string, tokens []*wire.TokenInfo) {
	after, err := compiled(p.next)
	if err != nil || len(after.Administrators()) == 0 {
		return
	}
	known := func(administrator string) bool {
		return administrator == identity.Anonymous || slices.Contains(certified, administrator) || me.Certified() && me.GetIdentity() == administrator ||
			slices.ContainsFunc(tokens, func(t *wire.TokenInfo) bool { return t.GetName() == administrator && t.GetEndsUnixMs() == 0 })
	}
	if !slices.ContainsFunc(after.Administrators(), known) {
		p.Warnings = append(p.Warnings, fmt.Sprintf("perhaps nobody could change this policy: of %s, the cluster knows neither a token that does not expire "+
			"nor a certificate that was used to change the policy or the tokens", nameList(after.Administrators()[:min(len(after.Administrators()), 5)])))
	}
}

// write writes the plan for people.
func (p *policyPlan) write(w io.Writer) {
	if p.Diff == "" {
		fmt.Fprintln(w, "the policy is the same")
		return
	}
	io.WriteString(w, p.Diff)
	for _, g := range p.Gains {
		fmt.Fprintf(w, "%s gains %s\n", printable(g.Identity), nameList(g.Roles))
	}
	for _, l := range p.Loses {
		fmt.Fprintf(w, "%s loses %s\n", printable(l.Identity), nameList(l.Roles))
	}
	for _, c := range p.Changes {
		fmt.Fprintf(w, "role %s changes for %s\n", printable(c.Role), nameList(c.Identities))
	}
	for _, text := range p.Warnings {
		mark(w, urgent)
		fmt.Fprintf(w, "WARNING: %s\n", printable(text))
	}
}
