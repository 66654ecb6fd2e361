// Package health answers whether a node is alive and whether it may be sent callers.
//
// A [Probe] knows the answers. The HTTP port gives them beside everything else; a [Server]
// gives them and nothing else, in plaintext, on a listener of its own (--health-addr), for
// load balancers and kubelets that must get an answer whatever happens on the other ports.
// They name the node and its leader: nothing that is worth hiding.
package health
