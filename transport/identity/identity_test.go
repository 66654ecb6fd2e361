package identity

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"math/big"
	"net/url"
	"strings"
	"testing"
)

// certificate returns a certificate as a peer presents it: signed, encoded and parsed again.
func certificate(t *testing.T, template *x509.Certificate) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(0x0abc)
	data, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(data)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// client returns the template of a certificate for clients with these URIs.
func client(t *testing.T, common string, uris ...string) *x509.Certificate {
	t.Helper()
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: common}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, text := range uris {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		cert.URIs = append(cert.URIs, u)
	}
	return cert
}

// server adds the usage of servers.
func server(cert *x509.Certificate) *x509.Certificate {
	cert.ExtKeyUsage = append(cert.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	return cert
}

// usable replaces the usages.
func usable(cert *x509.Certificate, usages ...x509.ExtKeyUsage) *x509.Certificate {
	cert.ExtKeyUsage = usages
	return cert
}

// presented is a certificate and the identity that it proves, or a part of the error after '!'.
type presented struct {
	cert *x509.Certificate
	want string
}

// present presents certificates to the cluster c1.
func present(t *testing.T, certs map[string]presented) {
	t.Helper()
	for what, c := range certs {
		caller, err := FromCertificate(certificate(t, c.cert), "c1")
		wanted, fails := strings.CutPrefix(c.want, "!")
		switch {
		case fails && (caller != nil || !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), wanted)):
			t.Errorf("%s: %v, %v; want %q", what, caller, err, wanted)
		case fails:
		case err != nil:
			t.Errorf("%s: %v", what, err)
		case caller.Identity != wanted || caller.Credential != "certificate 0abc" || caller.Address != "":
			t.Errorf("%s: %v, want %q", what, caller, wanted)
		}
	}
}

// TestFromCertificate checks which names in certificates identify a client.
func TestFromCertificate(t *testing.T) {
	long := strings.Repeat("n", 128)
	spiffe256 := "spiffe://corp/" + strings.Repeat("a", 256-len("spiffe://corp/"))
	present(t, map[string]presented{
		"a client":                    {client(t, "", "quorumlock://c1/client/alice"), "alice"},
		"a client with a common name": {client(t, "bob", "quorumlock://c1/client/alice"), "alice"},
		"a client in a team":          {client(t, "", "quorumlock://c1/client/team/app@host-1.x_y"), "team/app@host-1.x_y"},
		"the longest name":            {client(t, "", "quorumlock://c1/client/"+long), long},
		"a longer name":               {client(t, "", "quorumlock://c1/client/"+long+"n"), "!up to 128 letters"},
		"a client without a name":     {client(t, "", "quorumlock://c1/client/"), "!is not allowed"},
		"the reserved name":           {client(t, "", "quorumlock://c1/client/anonymous"), "!reserved for callers without an identity"},
		"a name with a colon":         {client(t, "", "quorumlock://c1/client/cn:alice"), "!is not allowed"},
		"a name with a star":          {client(t, "", "quorumlock://c1/client/a*"), "!not of the form"},
		"a name with a space":         {client(t, "", "quorumlock://c1/client/a%20b"), "!is not allowed"},
		"a name with a newline":       {client(t, "", "quorumlock://c1/client/alice%0A"), "!is not allowed"},
		"a name with a dash first":    {client(t, "", "quorumlock://c1/client/-alice"), "!is not allowed"},
		"an encoded letter":           {client(t, "", "quorumlock://c1/client/al%69ce"), "!not of the form quorumlock://<cluster>/client/<name>"},
		"a query":                     {client(t, "", "quorumlock://c1/client/alice?as=bob"), "!not of the form"},
		"a fragment":                  {client(t, "", "quorumlock://c1/client/alice#bob"), "!not of the form"},
		"a user":                      {client(t, "", "quorumlock://bob@c1/client/alice"), "!not of the form"},
		"a client of another cluster": {client(t, "", "quorumlock://c2/client/alice"), `!is for cluster "c2", but this is cluster "c1"`},
		"a client of a port":          {client(t, "", "quorumlock://c1:80/client/alice"), `!is for cluster "c1:80"`},
		"a node":                      {server(client(t, "n1", "quorumlock://c1/node/n1")), "!is that of the node"},
		"a node for clients only":     {client(t, "n1", "quorumlock://c1/node/n1"), "!is that of the node"},
		"a URI of ours without path":  {client(t, "alice", "quorumlock://c1"), "!is that of the node"},
		"SPIFFE":                      {client(t, "", "spiffe://corp/ns/app"), "spiffe://corp/ns/app"},
		"the longest SPIFFE id":       {client(t, "", spiffe256), spiffe256},
		"a longer SPIFFE id":          {client(t, "", spiffe256+"a"), "!has 257 bytes, at most 256"},
		"SPIFFE and a client":         {client(t, "", "spiffe://corp/app", "quorumlock://c1/client/alice"), "!several names"},
		"two clients":                 {client(t, "", "quorumlock://c1/client/alice", "quorumlock://c1/client/bob"), "!several names"},
		"a client and a node":         {client(t, "", "quorumlock://c1/client/alice", "quorumlock://c1/node/n1"), "!several names"},
		"two SPIFFE ids":              {client(t, "", "spiffe://corp/app", "spiffe://corp/app2"), "!several names"},
		"a foreign URI and a client":  {client(t, "", "https://corp/alice", "quorumlock://c1/client/alice"), "alice"},
		"a foreign URI and SPIFFE":    {client(t, "", "https://corp/alice", "spiffe://corp/app"), "spiffe://corp/app"},
		"a foreign URI":               {client(t, "alice", "https://corp/bob"), "cn:alice"},
		"a common name":               {client(t, "alice"), "cn:alice"},
		"a common name like ours":     {client(t, "quorumlock://c1/client/alice"), "cn:quorumlock://c1/client/alice"},
		"the reserved common name":    {client(t, "anonymous"), "cn:anonymous"},
		"the longest common name":     {client(t, strings.Repeat("x", 253)), "cn:" + strings.Repeat("x", 253)},
		"a longer common name":        {client(t, strings.Repeat("x", 254)), "!has 257 bytes, at most 256"},
		"a control character":         {client(t, "ali\x07ce"), "!control character U+0007"},
		"a newline":                   {client(t, "alice\nbob"), "!control character U+000A"},
		"no name":                     {client(t, ""), "!neither a URI nor a common name"},
	})
}

// TestUsageOfCertificates checks that only a certificate for clients identifies one.
func TestUsageOfCertificates(t *testing.T) {
	present(t, map[string]presented{
		"a client valid for servers": {server(client(t, "", "quorumlock://c1/client/alice")), "!that of a server"},
		"a client for any use":       {usable(client(t, "", "quorumlock://c1/client/alice"), x509.ExtKeyUsageAny), "!that of a server"},
		"a client for no named use":  {usable(client(t, "", "quorumlock://c1/client/alice")), "!not said to be that of a client"},
		"a common name for any use":  {usable(client(t, "db.corp"), x509.ExtKeyUsageAny), "!that of a server"},
		"any use and clients":        {usable(client(t, "db.corp"), x509.ExtKeyUsageAny, x509.ExtKeyUsageClientAuth), "!that of a server"},
		"a common name alone":        {usable(client(t, "db.corp")), "!not said to be that of a client"},
		"a common name for mail":     {usable(client(t, "db.corp"), x509.ExtKeyUsageEmailProtection), "!not said to be that of a client"},
		"clients and mail":           {usable(client(t, "ann"), x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageEmailProtection), "cn:ann"},
		"SPIFFE for any use":         {usable(client(t, "", "spiffe://corp/ns/app"), x509.ExtKeyUsageAny), "!that of a server"},
		"SPIFFE for no named use":    {usable(client(t, "", "spiffe://corp/ns/app")), "!not said to be that of a client"},
		"SPIFFE valid for servers":   {server(client(t, "alice", "spiffe://corp/ns/app")), "spiffe://corp/ns/app"},
		"a server":                   {server(client(t, "db.corp")), "!that of a server"},
		"a certificate for servers":  {server(&x509.Certificate{Subject: pkix.Name{CommonName: "db.corp"}}), "!that of a server"},
	})
}

// TestCertificateBeforeTheCluster checks that a node which does not know its cluster yet accepts a client of any.
func TestCertificateBeforeTheCluster(t *testing.T) {
	caller, err := FromCertificate(certificate(t, client(t, "", "quorumlock://c2/client/alice")), "")
	if err != nil || caller.Identity != "alice" {
		t.Errorf("%v, %v", caller, err)
	}
}

// TestURI checks that the URI that is written into a certificate is the one that is read from it.
func TestURI(t *testing.T) {
	if got := URI("c1", "team/app@host").String(); got != "quorumlock://c1/client/team/app@host" {
		t.Error(got)
	}
	cert := client(t, "")
	cert.URIs = []*url.URL{URI("c1", "team/app@host")}
	if caller, err := FromCertificate(certificate(t, cert), "c1"); err != nil || caller.Identity != "team/app@host" {
		t.Errorf("%v, %v", caller, err)
	}
}

// TestNamesCannotBeMistaken checks that no valid name has the form of another kind of identity, or of a pattern.
func TestNamesCannotBeMistaken(t *testing.T) {
	for _, text := range []string{Anonymous, "", "cn:alice", "spiffe://corp/app", "a*", "*", "a b", "a\x00", "ä", "/a", "@a", ".a", strings.Repeat("a", 129)} {
		if err := ValidName(text); err == nil {
			t.Errorf("%q is a valid name", text)
		} else if len(err.Error()) > 1_000 {
			t.Errorf("%q: %d bytes of an error", text, len(err.Error()))
		}
	}
	for _, text := range []string{"a", "A", "0", "anonymous2", "a/", "a.b@c-d_e/f", strings.Repeat("a", 128)} {
		if err := ValidName(text); err != nil {
			t.Error(err)
		}
	}
}

// TestHashToken checks that a new token hashes to the SHA-256 of its whole text, and that nothing but the form of
// NewToken is accepted. No error contains the text.
func TestHashToken(t *testing.T) {
	token := NewToken()
	sum, err := HashToken(token)
	if want := sha256.Sum256([]byte(token)); err != nil || !bytes.Equal(sum, want[:]) {
		t.Fatalf("%x, %v", sum, err)
	}
	if other := NewToken(); other == token || len(token) != 46 || !strings.HasPrefix(token, "ql_") {
		t.Errorf("%q, then %q", token, other)
	}
	secret := strings.TrimPrefix(token, "ql_")
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	unused := alphabet[strings.IndexByte(alphabet, secret[42])+1] // the last character has two unused bits
	for what, text := range map[string]string{
		"nothing":               "",
		"only the prefix":       "ql_",
		"no prefix":             secret,
		"another prefix":        "qx_" + secret,
		"an upper-case prefix":  "QL_" + secret,
		"a character less":      token[:45],
		"a character more":      token + "A",
		"a byte more":           "ql_" + base64.RawURLEncoding.EncodeToString(make([]byte, 33)),
		"padding":               token + "=",
		"standard base64":       "ql_" + strings.Repeat("+/", 21) + "A",
		"unused bits":           "ql_" + secret[:42] + string(unused),
		"a space":               token + " ",
		"a newline at the end":  token + "\n",
		"a newline within":      token[:20] + "\n" + token[20:],
		"a carriage return":     token + "\r\n",
		"a newline for a digit": token[:45] + "\n",
		"a header":              "Bearer " + token,
	} {
		sum, err := HashToken(text)
		if sum != nil || !errors.Is(err, ErrNone) {
			t.Errorf("%s: %x, %v", what, sum, err)
			continue
		}
		if len(text) > 8 && strings.Contains(err.Error(), text[3:8]) || strings.Contains(err.Error(), secret[:5]) {
			t.Errorf("%s: the error %q contains the token", what, err)
		}
	}
}

// TestTokenID checks that the id is the beginning of the hash, and reveals no more of it.
func TestTokenID(t *testing.T) {
	if got := TokenID([]byte{0xab, 0xcd, 0xef, 1, 2, 3, 4, 5}); got != "abcdef010203" {
		t.Error(got)
	}
	if got := TokenID(nil); got != "" {
		t.Error(got)
	}
}

// FuzzHashToken checks that only texts of the form of a token are accepted, whatever they contain.
func FuzzHashToken(f *testing.F) {
	f.Add(NewToken())
	f.Add("ql_\n" + NewToken()[3:])
	f.Fuzz(func(t *testing.T, text string) {
		sum, err := HashToken(text)
		secret, decodes := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(text, "ql_"))
		wellFormed := decodes == nil && text == "ql_"+base64.RawURLEncoding.EncodeToString(secret) && len(secret) == 32
		if (err == nil) != wellFormed || err == nil && len(sum) != 32 {
			t.Errorf("%q: %x, %v", text, sum, err)
		}
	})
}
