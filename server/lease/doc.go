// Package lease waits for leased holds, alike on every port.
//
// A lease is for clients that cannot keep a session: they name a secret of their own,
// and the cluster opens an implicit session with the acquire. What such a client asks
// for is answered with its final outcome, so the node that it asked waits for it, and
// while it waits it repeats the request in the client's place: that starts the time of
// the implicit session anew. When the client goes away the repeating stops with it, and
// the wait ends by its time.
//
// From the grant on nobody repeats anything: the time of a leased hold runs, and its
// client extends it or does not.
package lease
