package rpc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport"
)

// TestUnfinishedHandshakesTakeNoPlaces verifies that connections without a hello take no places and that the
// oldest of them are cut.
func TestUnfinishedHandshakesTakeNoPlaces(t *testing.T) {
	for _, secure := range []bool{false, true} {
		p := serve(t, func(c *Config) {
			c.Limits.MaxConnections, c.Limits.MaxHandshakes = 4, 40
			if secure {
				c.TLS = &tls.Config{Certificates: []tls.Certificate{ownCertificate(t)}}
			}
		})
		if secure {
			plain := p.dial
			p.dial = func() (net.Conn, error) {
				conn, err := plain()
				return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}), err //nolint:gosec // its own certificate
			}
		}
		early := connect(t, p)
		var flood []net.Conn
		for range 100 {
			conn, err := net.Dial("tcp", p.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(testTimeout))
			flood = append(flood, conn)
			defer conn.Close()
		}
		began := time.Now()
		late := connect(t, p)
		if took := time.Since(began); took > time.Second {
			t.Errorf("an honest client waited %v", took)
		}
		early.open(secret)
		late.open([]byte("another-secret-of-its-own"))
		closedByNode(t, flood[0])
		if n := p.handshakes.Len(); n > 20 {
			t.Errorf("%d connections of one address are half-made, its share is 20", n)
		}
		if n := p.Connections(); n != 2 {
			t.Errorf("%d connections are established, want 2", n)
		}
		transport.Cut(early.conn)
		transport.Cut(late.conn)
	}
}

func ownCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
