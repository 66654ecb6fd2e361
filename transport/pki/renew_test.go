package pki_test

import (
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/pki"
)

const day = 24 * time.Hour

// cluster creates an authority with the nodes n1 and n2, which last for 100 days, and the clients app and n2, which
// last for 20 days.
func cluster(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	nodes := []pki.Node{{ID: "n1", Hosts: []string{"lock1.example", "10.0.0.1"}}, {ID: "n2"}}
	if _, err := pki.Init(dir, "prod", nodes, nil, pki.ValidFor(100*day)); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.Extend(dir, "prod", nil, []string{"app", "n2"}, pki.ValidFor(20*day)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// pathsOf returns the paths of certificates, relative to dir and without extension.
func pathsOf(t *testing.T, dir string, certs []pki.Certificate) string {
	t.Helper()
	var paths []string
	for _, c := range certs {
		relative, err := filepath.Rel(dir, c.Path)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, strings.TrimSuffix(filepath.ToSlash(relative), ".crt"))
	}
	return strings.Join(paths, " ")
}

func TestRenew(t *testing.T) {
	for name, c := range map[string]struct {
		names  []string
		within time.Duration
		want   string
	}{
		"those that expire soon":   {nil, 30 * day, "clients/app/client clients/n2/client"},
		"those that expire sooner": {nil, 10 * day, ""},
		"all":                      {nil, 200 * day, "nodes/n1/peer nodes/n2/peer nodes/n1/server nodes/n2/server clients/app/client clients/n2/client"},
		"a node":                   {[]string{"n1"}, 0, "nodes/n1/peer nodes/n1/server"},
		"a client":                 {[]string{"app"}, 0, "clients/app/client"},
		"a node of a client's name": {[]string{"nodes/n2", "app", "nodes/n2/peer.crt"}, 0,
			"nodes/n2/peer nodes/n2/server clients/app/client"},
		"one certificate": {[]string{"nodes/n1/server"}, 0, "nodes/n1/server"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				dir := cluster(t)
				before := map[string]*x509.Certificate{}
				for _, f := range files(t, dir) {
					if pair, ok := strings.CutSuffix(f, ".crt"); ok {
						relative, _ := filepath.Rel(dir, pair)
						before[filepath.ToSlash(relative)] = load(t, dir, relative)
					}
				}
				got, err := pki.Renew(dir, c.names, c.within, pki.ValidFor(300*day))
				if paths := pathsOf(t, dir, got); err != nil || paths != c.want {
					t.Fatalf("renewed %q, %v, want %q", paths, err, c.want)
				}
				for pair, old := range before {
					cert := load(t, dir, pair) // fails if the key does not match
					if slices.Contains(strings.Fields(c.want), pair) {
						checkRenewed(t, pair, old, cert)
					} else if !cert.Equal(old) {
						t.Errorf("%s was changed", pair)
					}
				}
				for _, f := range files(t, dir) {
					if strings.HasSuffix(f, ".new") {
						t.Errorf("%s is left", f)
					}
				}
			})
		})
	}
}

func checkRenewed(t *testing.T, pair string, old, cert *x509.Certificate) {
	t.Helper()
	switch {
	case cert.SerialNumber.Cmp(old.SerialNumber) == 0:
		t.Errorf("%s has its old serial number", pair)
	case string(cert.RawSubjectPublicKeyInfo) == string(old.RawSubjectPublicKeyInfo):
		t.Errorf("%s has its old key", pair)
	case names(cert) != names(old) || cert.Subject.String() != old.Subject.String() || !slices.Equal(cert.ExtKeyUsage, old.ExtKeyUsage):
		t.Errorf("%s has other contents: %q %q %v", pair, names(cert), cert.Subject, cert.ExtKeyUsage)
	case time.Until(cert.NotAfter) < 299*day || time.Until(cert.NotAfter) > 300*day:
		t.Errorf("%s lasts until %v", pair, cert.NotAfter)
	}
}

// TestRenewKeepsThePermissions checks that a key that a service's group may read stays so.
func TestRenewKeepsThePermissions(t *testing.T) {
	dir := cluster(t)
	key := filepath.Join(dir, "clients/app/client.key")
	if err := os.Chmod(key, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.Renew(dir, []string{"app", "n1"}, 0); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{key: 0o640, filepath.Join(dir, "nodes/n1/peer.key"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
}

// TestRenewedCertificateDoesNotOutliveItsAuthority checks the bounds of a certificate's end.
func TestRenewedCertificateDoesNotOutliveItsAuthority(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := cluster(t)
		ca := load(t, dir, "ca")
		<-time.After(time.Until(ca.NotAfter) - 50*day)
		if _, err := pki.Renew(dir, []string{"app"}, 0); err != nil {
			t.Fatal(err)
		}
		if cert := load(t, dir, "clients/app/client"); !cert.NotAfter.Equal(ca.NotAfter) {
			t.Errorf("it lasts until %v, the authority until %v", cert.NotAfter, ca.NotAfter)
		}
		if _, err := pki.Renew(dir, nil, 60*day); !errors.Is(err, pki.ErrInvalid) || !strings.Contains(err.Error(), "the authority itself expires on") {
			t.Errorf("within the last days of the authority: %v", err)
		}
		<-time.After(51 * day)
		for what, do := range map[string]func() error{
			"renew":  func() error { _, err := pki.Renew(dir, []string{"app"}, 0); return err },
			"extend": func() error { _, err := pki.Extend(dir, "prod", nil, []string{"b"}); return err },
			"revoke": func() error { _, err := pki.Revoke(dir, []string{"app"}, nil); return err },
		} {
			if err := do(); !errors.Is(err, pki.ErrInvalid) || !strings.Contains(err.Error(), "expired on") {
				t.Errorf("%s with an authority that has expired: %v", what, err)
			}
		}
	})
}

// TestFailedRenewChangesNothing checks that an error leaves every file as it was.
func TestFailedRenewChangesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		names  []string
		within time.Duration
		life   time.Duration
		spoil  func(dir string) error
		want   string
	}{
		"no such name":            {names: []string{"n1", "n9"}, want: `"n9" is neither a node or client`},
		"a node or a client":      {names: []string{"n2"}, want: "give nodes/n2 or clients/n2"},
		"the authority":           {names: []string{"DIR/ca.crt"}, want: "the authority itself"},
		"no days":                 {names: []string{"n1"}, life: -day, want: "use 1 to 3650 days"},
		"too many days":           {names: []string{"n1"}, life: 3651 * day, want: "use 1 to 3650 days"},
		"a certificate elsewhere": {names: []string{"DIR/copy.crt"}, want: "is not in", spoil: func(dir string) error { return os.Link(dir+"/clients/app/client.crt", dir+"/copy.crt") }},
		"another authority's": {names: []string{"n1", "app"}, want: "did not sign", spoil: func(dir string) error {
			other := dir + "-other"
			_, err := pki.Init(other, "prod", nil, []string{"app"})
			return errors.Join(err, os.Rename(other+"/clients/app/client.crt", dir+"/clients/app/client.crt"))
		}},
		"no certificate":  {within: day, want: "holds no CERTIFICATE", spoil: func(dir string) error { return os.WriteFile(dir+"/nodes/n2/peer.crt", nil, 0o600) }},
		"no authority":    {names: []string{"n1"}, want: "ca.crt", spoil: func(dir string) error { return os.Remove(dir + "/ca.crt") }},
		"cannot write":    {names: []string{"n1", "app"}, want: "client.key.new", spoil: func(dir string) error { return os.MkdirAll(dir+"/clients/app/client.key.new/x", 0o700) }},
		"another's list":  {names: []string{"n1"}, want: "not a list of the authority", spoil: func(dir string) error { return foreignList(dir) }},
		"list is no list": {names: []string{"n1"}, want: "holds no X509 CRL", spoil: func(dir string) error { return os.WriteFile(dir+"/crl.pem", nil, 0o600) }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := cluster(t)
			if c.spoil != nil {
				if err := c.spoil(dir); err != nil {
					t.Fatal(err)
				}
			}
			before := contents(t, dir)
			args := slices.Clone(c.names)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "DIR", dir)
			}
			var opts []pki.Option
			if c.life != 0 {
				opts = append(opts, pki.ValidFor(c.life))
			}
			if name == "a certificate elsewhere" { // not the same file, but the same certificate
				b, err := os.ReadFile(args[0])
				if err := errors.Join(err, os.Remove(args[0]), os.WriteFile(args[0], b, 0o600)); err != nil {
					t.Fatal(err)
				}
				before = contents(t, dir)
			}
			if got, err := pki.Renew(dir, args, c.within, opts...); err == nil || !strings.Contains(err.Error(), c.want) || len(got) > 0 {
				t.Errorf("got %v, %v, want %q", got, err, c.want)
			}
			if after := contents(t, dir); after != before {
				t.Errorf("the files changed from\n%s\nto\n%s", before, after)
			}
		})
	}
}

// foreignList replaces the list in dir by that of another authority.
func foreignList(dir string) error {
	other := dir + "-other"
	_, err := pki.Init(other, "prod", nil, nil)
	return errors.Join(err, os.Rename(pki.CRLPath(other), pki.CRLPath(dir)))
}

// TestInterruptedRenewIsResumed checks that the next Renew completes one that was interrupted between the key and the
// certificate, and removes what another one left.
func TestInterruptedRenewIsResumed(t *testing.T) {
	dir := cluster(t)
	at := filepath.Join(dir, "clients/app/client")
	old, err := os.ReadFile(at + ".crt")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pki.Renew(dir, []string{"app"}, 0); err != nil {
		t.Fatal(err)
	}
	// As if only the key had been renamed.
	if err := errors.Join(os.Rename(at+".crt", at+".crt.new"), os.WriteFile(at+".crt", old, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "nodes/n1/peer.key.new"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.Renew(dir, []string{"app", "n1"}, 0); err != nil {
		t.Fatal(err)
	}
	load(t, dir, "clients/app/client")
	load(t, dir, "nodes/n1/peer")
}

func TestRevoke(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := cluster(t)
		old := load(t, dir, "nodes/n1/server")
		copied := filepath.Join(t.TempDir(), "lost.crt")
		b, err := os.ReadFile(filepath.Join(dir, "clients/n2/client.crt"))
		if err := errors.Join(err, os.WriteFile(copied, b, 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := pki.Renew(dir, []string{"n1", "clients/n2"}, 0); err != nil {
			t.Fatal(err)
		}
		began := time.Now().Truncate(time.Second)
		total := 0
		for number, step := range []struct {
			names, serials []string
			added          int
		}{
			{names: []string{"app"}, added: 1},
			{names: []string{"app"}},
			{names: []string{"nodes/n2", copied}, added: 3},
			{serials: []string{identity.Serial(old), strings.ToUpper(identity.Serial(old))}, added: 1},
			{serials: []string{"0a:0B:ff"}, added: 1},
			{},
		} {
			<-time.After(time.Minute)
			crl, err := pki.Revoke(dir, step.names, step.serials)
			total += step.added
			if err != nil || crl.Number.Int64() != int64(number+2) || len(crl.Added) != step.added || crl.Entries != total || !crl.Next.Equal(load(t, dir, "ca").NotAfter) {
				t.Fatalf("step %d: %+v, %v", number, crl, err)
			}
		}
		list, err := pki.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		var revoked []pki.Certificate
		for _, c := range list {
			if !c.Revoked.IsZero() {
				revoked = append(revoked, c)
			}
		}
		if got, want := pathsOf(t, dir, list), "ca nodes/n1/peer nodes/n2/peer nodes/n1/server nodes/n2/server clients/app/client clients/n2/client"; got != want {
			t.Errorf("listed %q, want %q", got, want)
		}
		if got, want := pathsOf(t, dir, revoked), "nodes/n2/peer nodes/n2/server clients/app/client"; got != want {
			t.Errorf("revoked %q, want %q", got, want)
		}
		if at := revoked[2].Revoked; !at.Equal(began.Add(time.Minute)) {
			t.Errorf("revoking it again changed the time to %v", at)
		}
		// What is revoked is renewed only by name.
		if renewed, err := pki.Renew(dir, nil, 30*day); err != nil || len(renewed) != 0 {
			t.Errorf("renewed %v, %v", renewed, err)
		}
		if renewed, err := pki.Renew(dir, []string{"app"}, 0); err != nil || len(renewed) != 1 || !renewed[0].Revoked.IsZero() {
			t.Errorf("renewed by name: %v, %v", renewed, err)
		}
	})
}

// TestRevokeWithoutAList checks that a directory of an earlier version gets its first list.
func TestRevokeWithoutAList(t *testing.T) {
	dir := cluster(t)
	if err := os.Remove(pki.CRLPath(dir)); err != nil {
		t.Fatal(err)
	}
	crl, err := pki.Revoke(dir, []string{"app"}, nil, pki.ValidFor(30*day))
	if err != nil || crl.Number.Int64() != 1 || crl.Path != pki.CRLPath(dir) || crl.Entries != 1 || time.Until(crl.Next) > 30*day {
		t.Errorf("%+v, %v", crl, err)
	}
}

func TestFailedRevokeChangesNothing(t *testing.T) {
	dir, other := cluster(t), cluster(t)
	before := contents(t, dir)
	for name, c := range map[string]struct {
		names, serials []string
		life           time.Duration
		want           string
	}{
		"no such name":           {names: []string{"app", "n9"}, want: `"n9" is neither`},
		"all nodes":              {names: []string{"nodes"}, want: `"nodes" is neither`},
		"the authority":          {names: []string{filepath.Join(dir, "ca.crt")}, want: "the authority itself"},
		"the authority's number": {serials: []string{identity.Serial(load(t, dir, "ca"))}, want: "the authority itself"},
		"no number":              {serials: []string{"xyz"}, want: "hexadecimal"},
		"an empty number":        {serials: []string{""}, want: "hexadecimal"},
		"zero":                   {serials: []string{"0"}, want: "hexadecimal"},
		"a number too long":      {serials: []string{strings.Repeat("f", 41)}, want: "up to 40"},
		"another authority's":    {names: []string{filepath.Join(other, "clients/app/client.crt")}, want: "did not sign"},
		"no days":                {names: []string{"app"}, life: -day, want: "use 1 to 3650 days"},
	} {
		var opts []pki.Option
		if c.life != 0 {
			opts = append(opts, pki.ValidFor(c.life))
		}
		if got, err := pki.Revoke(dir, c.names, c.serials, opts...); !errors.Is(err, pki.ErrInvalid) || !strings.Contains(err.Error(), c.want) || got != nil {
			t.Errorf("%s: %v, %v, want %q", name, got, err, c.want)
		}
	}
	if after := contents(t, dir); after != before {
		t.Errorf("the files changed from\n%s\nto\n%s", before, after)
	}
}

func TestListOfNoDirectory(t *testing.T) {
	if got, err := pki.List(t.TempDir()); !errors.Is(err, pki.ErrInvalid) || got != nil {
		t.Errorf("%v, %v", got, err)
	}
}
