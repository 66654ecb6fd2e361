// Package lease waits for leased holds in the same way on every port.
//
// Leases are for clients that cannot maintain a session. Such a client chooses a secret, and the cluster
// opens an implicit session with the acquire. The client gets only the final outcome, so the node that
// received the request waits for it. Meanwhile the node repeats the request on the client's behalf, which
// restarts the TTL of the implicit session. When the client disconnects, the repetitions stop, and the wait
// expires with the session.
//
// After the grant nothing is repeated: the TTL of the leased hold runs, and the client extends it or lets it
// expire.
package lease
