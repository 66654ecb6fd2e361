// Package identity determines who a caller is from what was verified: a client certificate or a token. What a caller
// says about itself is never an identity.
//
//	alice               certificate with the URI quorumlock://<cluster>/client/alice, or a token made for alice
//	spiffe://corp/app   certificate with a SPIFFE id
//	cn:app              any other client certificate: its common name
//	anonymous           no certificate and no token
//
// Names have no colon, so no name can be taken for one of the other kinds. Certificates of nodes and of servers
// identify no client: a client's are valid for clients and, except with a SPIFFE id, not for servers.
package identity
