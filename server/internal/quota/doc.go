// Package quota enforces the quotas of identities that each node counts for itself: connections, watches and requests
// per second. Those of sessions, claims and bytes are enforced by the state machine.
//
// Both ports share the [Node]. Each connection opens an [Account] of its caller's identity; all connections of an
// identity share the counts. The limits are those of the policy in force, so that a changed policy applies to open
// connections as well. It ends none of them.
//
// [Monitor] makes quotas visible before they refuse something: it counts for the metrics how many identities have used
// 80 % of a quota or all of it, and logs a warning that names the identity.
package quota
