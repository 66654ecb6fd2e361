// Package handshake bounds the connections of a port that are not established yet.
//
// Whoever can reach a port can open connections and leave them half-made. They must neither
// take the places of established ones nor keep honest callers out, who need milliseconds. So
// a [Limiter] counts them apart, in total and per source address (IPv6 by /64). Beyond the
// total the oldest is closed for the newcomer, beyond a source's share the oldest of that
// source: it has needed longest and is the least likely to be honest.
//
// TLS costs processor time before the caller has shown anything. A Limiter lets few
// handshakes compute at the same time, so that established connections stay quick. Those
// that wait for the processor are served by source in turn, and within a source the newest
// first: under a flood the oldest are about to be closed, and work on them would be lost.
//
// The client port, the HTTP port, the peer port and the health listener each have a Limiter
// of their own.
package handshake
