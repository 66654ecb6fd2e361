package fsm

import (
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// An administrator is an identity to which a binding gives the verb policy by its exact name. It is secure if it has a lasting
// credential that the cluster knows: a token that does not expire, or a client certificate with which it has changed the
// policy or the tokens. Once there is a secure administrator, each change leaves one.

const (
	// noAdministrator is the message for a policy that nobody could change any more.
	noAdministrator = "nobody could change the policy afterwards: a binding must give a role with the verb policy to an identity by its exact name, and this identity must not have only tokens that expire"
	// noSecureAdministrator is the message for a change that takes the last lasting credential.
	noSecureAdministrator = "nobody might be able to change the policy afterwards: no identity to which a binding gives the verb policy by its exact name has a token that does not expire, or has used a certificate for such a change: create such a token, or let such an identity make this change with its certificate"
)

// Certified returns the administrators that have changed the policy or the tokens with a client certificate, sorted.
// It is shared and must not be changed.
func (a *Access) Certified() []string { return a.certified }

// kept reports whether there is an administrator that has not only tokens that expire.
func (a *Access) kept() bool {
	return a.rights == nil || slices.ContainsFunc(a.rights.Administrators(), func(administrator string) bool {
		own := func(t *wire.TokenRecord) bool { return t.Info.Name == administrator }
		return !slices.ContainsFunc(a.tokens, own) || a.isSecure(administrator)
	})
}

// secure reports whether there is a secure administrator.
func (a *Access) secure() bool { return slices.ContainsFunc(a.rights.Administrators(), a.isSecure) }

func (a *Access) isSecure(administrator string) bool {
	_, certified := slices.BinarySearch(a.certified, administrator)
	return certified || slices.ContainsFunc(a.tokens, func(t *wire.TokenRecord) bool {
		return t.Info.Name == administrator && t.Info.EndsUnixMs == 0
	})
}

// certify returns a copy that remembers the caller if it is an administrator with a certificate, and forgets identities
// that are no administrators any more.
func (a Access) certify(caller *wire.Caller) Access {
	known := a.certified
	a.certified = nil
	for _, administrator := range a.rights.Administrators() {
		_, found := slices.BinarySearch(known, administrator)
		if found || administrator == caller.GetIdentity() && caller.Certified() {
			a.certified = append(a.certified, administrator)
		}
	}
	return a
}

// change makes a changed copy of the access current, unless it takes the last lasting credential of an administrator.
// The removal of the policy takes none, because everybody may set another one.
func (m *Machine) change(next Access) *wire.Result {
	now := m.Access().certify(m.caller)
	next = next.certify(m.caller)
	if next.rights != nil && now.secure() && !next.secure() {
		return answer(wire.Status_FAILED_PRECONDITION, noSecureAdministrator)
	}
	m.state.access = &next
	return nil
}
