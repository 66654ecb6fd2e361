// Package pki creates, renews and revokes the certificates of a cluster: one authority, two certificates for each node
// and one for each client.
//
//	ca.crt, ca.key                   the authority; ca.key signs, no node needs it
//	crl.pem                          the certificates that it has revoked
//	nodes/<id>/peer.crt, peer.key    for the peer port; names quorumlock://<cluster>/<id>
//	nodes/<id>/server.crt, server.key for the client and HTTP ports; names the hosts
//	clients/<name>/client.crt, client.key names quorumlock://<cluster>/client/<name>
//
// One authority is sufficient, because the peer port checks not only the signature of a certificate but
// also the node that it names, and only peer certificates name nodes.
//
// Keys are ECDSA on P-256 and readable only by their owner. Init and Extend never overwrite files, since a lost key
// cannot be recovered. Renew and Revoke replace them, each atomically.
package pki
