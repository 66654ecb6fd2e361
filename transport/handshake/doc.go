// Package handshake bounds the connections of a port that are not established yet.
//
// Anyone who can reach a port can open connections and leave them half-open. Such connections must not
// take the places of established ones, and must not keep out honest callers, whose handshakes take
// milliseconds. So a [Limiter] counts them separately, in total and per source address (IPv6 by /64).
// When the total is exceeded, the oldest connection is closed in favour of the new one; when the share of
// a source is exceeded, the oldest connection of that source. The oldest has taken longest and is the
// least likely to be honest.
//
// TLS costs CPU time before the caller has proved anything. A Limiter allows only a few handshakes to
// compute at the same time, so that established connections stay fast. Handshakes that wait for a slot
// are served round-robin by source, and within a source the newest first: in a flood the oldest are about
// to be closed, and work on them would be lost. While others wait, a slot rests as long as it was used.
//
// The client port, the HTTP port, the peer port and the health listener each have their own Limiter.
package handshake
