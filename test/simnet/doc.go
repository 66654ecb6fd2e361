// Package simnet is an in-memory network for tests of clusters. It implements transport.Network, so the real
// servers run on it, and it fails like a real network:
//
//   - a cut link loses nothing that was sent: it arrives after the link has healed, as with TCP; new
//     connections hang;
//   - a single connection can hang in the same way, while others work: what was sent on it may arrive long
//     after it was given up and repeated elsewhere;
//   - a link with scatter keeps each connection in order, but not different connections;
//   - a lossy link delays what it loses by a retransmission;
//   - a host that was killed resets every connection.
//
// It waits on channels and timers only, so it runs in virtual time under testing/synctest. It is as
// deterministic as its callers: its only randomness is a seeded generator. Stats reports the effects of the
// faults.
package simnet
