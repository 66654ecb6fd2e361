// Package health reports whether a node is alive and whether it is ready for clients.
//
// [Probe] determines the answers. The HTTP port serves them besides everything else. A [Server] serves only
// them, in plaintext on its own listener (--health-addr), for load balancers and kubelets that need an answer
// whatever happens on the other ports. The answers contain the names of the node and its leader, which are
// not secret.
package health
