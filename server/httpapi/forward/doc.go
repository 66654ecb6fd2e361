// Package forward sends a request to the leader on behalf of a node that cannot answer it: one hop, over
// persistent connections. It sends a request again to the next leader if the previous one certainly did
// nothing, or if a second execution returns the outcome of the first.
package forward
