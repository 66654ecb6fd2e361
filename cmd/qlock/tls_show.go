package main

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/pki"
)

// tlsShowVerb lists certificates.
func tlsShowVerb() *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "list the certificates in a directory, with their ends and whether they are revoked",
		ArgsUsage: "[DIRECTORY]",
		Action: func(c *cli.Context) error {
			args := arguments(c)
			if len(args) > 1 {
				return usagef("tls show takes one directory, got %d", len(args))
			}
			dir := cmp.Or(strings.Join(args, ""), ".")
			certs, err := pki.List(dir)
			if err != nil {
				return issueError(err)
			}
			shown := shownCerts(dir, certs, time.Now())
			return show(c, fields{map[string]any{"certificates": shown}}, func(w io.Writer) {
				writeCerts(w, shown)
				writeRenewal(w, dir, shown)
			})
		},
	}
}

// shownCert is a certificate as it is shown. Only File, Serial and Revoked are known of one that is named by its number.
type shownCert struct {
	File     string     `json:"file"`
	Kind     pki.Kind   `json:"kind"`
	Identity string     `json:"identity"`
	Serial   string     `json:"serial"`
	NotAfter *time.Time `json:"notAfter"`
	DaysLeft int        `json:"daysLeft"`
	Revoked  *time.Time `json:"revoked"`
}

func shownCerts(dir string, certs []pki.Certificate, now time.Time) []shownCert {
	shown := make([]shownCert, 0, len(certs))
	for _, c := range certs {
		s := shownCert{File: c.Path, Kind: c.Kind, Serial: c.Serial}
		if relative, err := filepath.Rel(dir, c.Path); err == nil && filepath.IsLocal(relative) && c.Path != "" {
			s.File = relative
		}
		if c.Cert != nil {
			end := c.Cert.NotAfter.UTC()
			s.NotAfter, s.DaysLeft, s.Identity = &end, max(0, int(end.Sub(now)/day)), identityOf(c)
		}
		if !c.Revoked.IsZero() {
			at := c.Revoked.UTC()
			s.Revoked = &at
		}
		shown = append(shown, s)
	}
	return shown
}

// identityOf returns what a certificate names: the client, the node, or the hosts of a node.
func identityOf(c pki.Certificate) string {
	if caller, err := identity.FromCertificate(c.Cert, ""); err == nil && c.Kind != pki.KindAuthority {
		return caller.GetIdentity()
	}
	var names []string
	for _, u := range c.Cert.URIs {
		names = append(names, u.String())
	}
	names = append(names, c.Cert.DNSNames...)
	for _, ip := range c.Cert.IPAddresses {
		names = append(names, ip.String())
	}
	return cmp.Or(strings.Join(names, ","), c.Cert.Subject.CommonName)
}

func writeCerts(w io.Writer, certs []shownCert) {
	t := newTable("FILE", "IDENTITY", "SERIAL", "EXPIRES", "DAYS LEFT", "REVOKED")
	for _, c := range certs {
		expires, days, revoked := "-", "-", "-"
		if c.NotAfter != nil {
			expires, days = c.NotAfter.Format(time.DateOnly), fmt.Sprint(c.DaysLeft)
		}
		if c.Revoked != nil {
			revoked = c.Revoked.Format(time.DateOnly)
		}
		t.row(dash(printable(c.File)), dash(printable(c.Identity)), c.Serial, expires, days, revoked)
	}
	t.write(w)
}

// writeRenewal says what to do about certificates that expire soon.
func writeRenewal(w io.Writer, dir string, certs []shownCert) {
	soon := 0
	for _, c := range certs {
		if c.DaysLeft >= int(expiryNotice/day) || c.Revoked != nil {
			continue
		}
		if c.Kind == pki.KindAuthority {
			mark(w, urgent)
			fmt.Fprintln(w, "The authority expires soon, and with it every certificate: create a new one with qlock tls init in another directory.")
			return
		}
		soon++
	}
	if soon > 0 {
		mark(w, urgent)
		fmt.Fprintf(w, "%s within 30 days: qlock tls renew --dir %s\n", expire(soon), shellQuote(dir))
	}
}

func expire(n int) string {
	if n == 1 {
		return "1 certificate expires"
	}
	return fmt.Sprintf("%d certificates expire", n)
}
