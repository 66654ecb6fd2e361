package transport_test

import (
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport"
)

func TestPlaintextOnlyOnLoopback(t *testing.T) {
	for addr, ok := range map[string]bool{
		"127.0.0.1:7400": true, "127.8.8.8:7400": true, "[::1]:7400": true, "localhost:7400": true, "[::ffff:127.0.0.1]:1": true,
		":7400": false, "0.0.0.0:7400": false, "[::]:7400": false, "10.0.0.1:7400": false, "lock.example:7400": false,
		"localhost.example:7400": false, "[::ffff:10.0.0.1]:1": false, "127.0.0.1.example:1": false,
	} {
		err := transport.CheckPlaintext(addr, false)
		if ok != (err == nil) {
			t.Errorf("%s: %v", addr, err)
		}
		if !ok && (!errors.Is(err, transport.ErrPlaintext) || !strings.Contains(err.Error(), "--insecure") ||
			!strings.Contains(err.Error(), "--tls-cert")) {
			t.Errorf("%s: %v does not say what to do", addr, err)
		}
		if err := transport.CheckPlaintext(addr, true); err != nil {
			t.Errorf("%s with --insecure: %v", addr, err)
		}
	}
	if err := transport.CheckPlaintext("7400", true); err == nil {
		t.Error("an address without a port passed")
	}
}

func TestPeerNames(t *testing.T) {
	if got := transport.PeerURI("prod", "n1").String(); got != "quorumlock://prod/n1" {
		t.Errorf("got %s", got)
	}
	for uris, want := range map[string]string{
		"quorumlock://prod/n1":                 "prod n1",
		"https://prod/n1 quorumlock://prod/n1": "prod n1",
		"":                                     "",
		"https://prod/n1":                      "",
		"quorumlock://prod/n1 quorumlock://prod/n2": "",
		"quorumlock://prod":                         "",
		"quorumlock://prod/":                        "",
		"quorumlock:///n1":                          "",
		"quorumlock://user@prod/n1":                 "",
		"quorumlock://prod/n1?x=1":                  "",
		"quorumlock://prod/n1#x":                    "",
		"quorumlock://prod//n1":                     "",
	} {
		cert := &x509.Certificate{}
		for _, s := range strings.Fields(uris) {
			u, err := url.Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			cert.URIs = append(cert.URIs, u)
		}
		cluster, id, err := transport.PeerFromCert(cert)
		if got := strings.TrimSpace(cluster + " " + id); got != want || (want == "") != errors.Is(err, transport.ErrPeerName) {
			t.Errorf("%q: %q, %v, want %q", uris, got, err, want)
		}
	}
}
