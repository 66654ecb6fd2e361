// Package lease waits for leased holds in the same way on every port.
//
// Leases are for clients that cannot maintain a session. Such a client chooses a secret, and the cluster
// opens an implicit session with the acquire. The client gets only the final outcome, so the node that
// received the request waits for it. Meanwhile the node repeats the request on the client's behalf, which
// restarts the short TTL that the implicit session has while it waits. When the client disconnects, the
// repetitions stop, and the wait expires with the session.
//
// A grant after a wait keeps the short TTL until the node confirms it, which it does only while it still has the
// client. The result of the confirmation is the answer. If the client leaves between the two, the node releases the
// hold after a grace period, unless the request was repeated. After the answer, the client extends the lease or lets
// it expire.
package lease
