package fsm

import (
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// A keeper is an identity to which a binding gives POLICY by its exact name. It is secure if it has a lasting
// credential that the cluster knows: a token without an end, or a client certificate with which it has changed the
// policy or the tokens. Once there is a secure keeper, each change leaves one.

const (
	// noKeeper is the message for a policy that nobody could change any more.
	noKeeper = "nobody could change the policy any more: a binding must give a role with POLICY to an identity by its exact name, and that identity needs a certificate or a token without an end"
	// noSecureKeeper is the message for a change that takes the last lasting credential.
	noSecureKeeper = "nobody could change the policy any more: afterwards no identity to which a binding gives POLICY by its exact name has a token without an end, or has used a certificate for such a change: create such a token, or let such an identity make this change with its certificate"
)

// Certified returns the keepers that have changed the policy or the tokens with a client certificate, sorted. It is
// shared and must not be changed.
func (a *Access) Certified() []string { return a.certified }

// kept reports whether there is a keeper that has not only tokens that end.
func (a *Access) kept() bool {
	return a.rights == nil || slices.ContainsFunc(a.rights.Keepers(), func(keeper string) bool {
		own := func(t *wire.TokenRecord) bool { return t.Info.Name == keeper }
		return !slices.ContainsFunc(a.tokens, own) || a.isSecure(keeper)
	})
}

// secure reports whether there is a secure keeper.
func (a *Access) secure() bool { return slices.ContainsFunc(a.rights.Keepers(), a.isSecure) }

func (a *Access) isSecure(keeper string) bool {
	_, certified := slices.BinarySearch(a.certified, keeper)
	return certified || slices.ContainsFunc(a.tokens, func(t *wire.TokenRecord) bool {
		return t.Info.Name == keeper && t.Info.EndsUnixMs == 0
	})
}

// certify returns a copy that remembers the caller if it is a keeper with a certificate, and forgets identities that are
// no keepers any more.
func (a Access) certify(caller *wire.Caller) Access {
	known := a.certified
	a.certified = nil
	for _, keeper := range a.rights.Keepers() {
		_, found := slices.BinarySearch(known, keeper)
		if found || keeper == caller.GetIdentity() && caller.Certified() {
			a.certified = append(a.certified, keeper)
		}
	}
	return a
}

// change makes a changed copy of the access current, unless it takes the last lasting credential of a keeper. The
// removal of the policy takes none, because everybody may set another one.
func (m *Machine) change(next Access) *wire.Result {
	now := m.Access().certify(m.caller)
	next = next.certify(m.caller)
	if next.rights != nil && now.secure() && !next.secure() {
		return answer(wire.Status_FAILED_PRECONDITION, noSecureKeeper)
	}
	m.state.access = &next
	return nil
}
