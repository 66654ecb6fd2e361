// Package pki makes the certificates of a cluster: one authority, and from it two
// certificates for each node and one for each client.
//
//	ca.crt, ca.key                   the authority; ca.key signs, no node needs it
//	nodes/<id>/peer.crt, peer.key    for the peer port; names quorumlock://<cluster>/<id>
//	nodes/<id>/server.crt, server.key for the client and HTTP ports; names the hosts
//	clients/<name>/client.crt, client.key
//
// One authority is enough, because the peer port does not ask who signed alone but also
// whom a certificate names, and only peer certificates name nodes.
//
// Keys are ECDSA on P-256 and readable by their owner only. Nothing is ever overwritten: a
// key that is gone is gone.
package pki
