package transport

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// ErrPeerName is returned when a certificate does not name exactly one node.
var ErrPeerName = errors.New("the certificate names no node")

const peerScheme = "quorumlock"

// PeerURI returns the name of a node in its peer certificate: quorumlock://<cluster>/<id>, a subject
// alternative name of type URI.
func PeerURI(cluster, id string) *url.URL {
	return &url.URL{Scheme: peerScheme, Host: cluster, Path: "/" + id}
}

// PeerFromCert returns the node that a peer certificate names. It returns ErrPeerName if there is no such
// name, more than one, or one that does not have the form of PeerURI.
func PeerFromCert(cert *x509.Certificate) (cluster, id string, err error) {
	var names []*url.URL
	for _, u := range cert.URIs {
		if u.Scheme == peerScheme {
			names = append(names, u)
		}
	}
	if len(names) != 1 {
		return "", "", fmt.Errorf("%w: it has %d URIs of the form quorumlock://<cluster>/<id>, expected one", ErrPeerName, len(names))
	}
	cluster, id = names[0].Host, strings.TrimPrefix(names[0].Path, "/")
	if cluster == "" || id == "" || strings.Contains(id, "/") || names[0].String() != PeerURI(cluster, id).String() {
		return "", "", fmt.Errorf("%w: %q is not of the form quorumlock://<cluster>/<id>", ErrPeerName, names[0])
	}
	return cluster, id, nil
}
