// Package pki creates the certificates of a cluster: one authority, two certificates for each node and
// one for each client.
//
//	ca.crt, ca.key                   the authority; ca.key signs, no node needs it
//	nodes/<id>/peer.crt, peer.key    for the peer port; names quorumlock://<cluster>/<id>
//	nodes/<id>/server.crt, server.key for the client and HTTP ports; names the hosts
//	clients/<name>/client.crt, client.key
//
// One authority is sufficient, because the peer port checks not only the signature of a certificate but
// also the node that it names, and only peer certificates name nodes.
//
// Keys are ECDSA on P-256 and readable only by their owner. Files are never overwritten, since a lost key
// cannot be recovered.
package pki
