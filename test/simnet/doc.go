// Package simnet is a network in memory for tests of clusters. It implements
// transport.Network, so the real servers run on it, and it breaks like a real one:
//
//   - a cut link loses nothing that was sent: it arrives after the link has healed, as
//     TCP would have it; new connections hang;
//   - a connection that hangs does the same alone, while others get through: what was
//     sent on it may arrive long after it was given up and repeated elsewhere;
//   - a link that scatters keeps each connection in order, but not one with another;
//   - a lossy link delays by a retransmission what it loses;
//   - a host that was killed resets every connection.
//
// Everything waits on channels and timers only, so it runs in virtual time under
// testing/synctest. It is deterministic as far as its callers are: its only chance is a
// seeded generator. Stats say what the faults have done.
package simnet
