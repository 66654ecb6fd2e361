// Package pending tracks the acquires and upgrades of the HTTP port, and the leases of all ports, that callers wait for,
// or got an answer to, on this node. A request has more than one caller if it was sent again meanwhile. When its last
// caller leaves, the request ends under two guarantees:
//
//   - No hold is left behind silently: a request without callers is cancelled, and released if it was already
//     granted.
//   - A retry gets the latest outcome: cancelling is delayed by a grace period, and a caller that comes back
//     within it finds its place in the queue kept.
//
// One rule takes precedence: a node never releases a hold that a client may know of. A grant is sent only
// while its caller is connected. After that, or if it was granted before the request became pending, the hold
// ends by its own release or with its session.
package pending
