package main

import (
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/pki"
)

// tlsRenewVerb replaces certificates before they expire.
func tlsRenewVerb() *cli.Command {
	return &cli.Command{
		Name:      "renew",
		Usage:     "replace certificates that expire soon, or those named, by new ones with new keys",
		ArgsUsage: "[CERTIFICATE…]",
		Description: "CERTIFICATE is a node, a client, or a file, such as n1, ops or nodes/n1/peer.crt. Without any, renews\n" +
			"those that expire within --within-days and are not revoked. The old certificates remain valid until\n" +
			"they expire. Copy the new files to the nodes and clients, which reload them without a restart.",
		Flags: []cli.Flag{
			dirFlag(),
			daysFlag("730", daysUsage),
			&cli.IntFlag{Name: "within-days", Value: 30, Usage: "renew what expires within this `NUMBER` of days"},
		},
		Action: func(c *cli.Context) error {
			dir, within := c.String("dir"), c.Int("within-days")
			if dir == "" {
				return usagef("tls renew needs --dir, the directory of qlock tls init, as in qlock tls renew --dir certs")
			}
			if within < 1 || within > maxDays {
				return usagef("--within-days %d: use 1 to %d", within, maxDays)
			}
			options, err := validFor(c)
			if err != nil {
				return err
			}
			renewed, err := pki.Renew(dir, arguments(c), time.Duration(within)*day, options...)
			if err != nil {
				return issueError(err)
			}
			certs := shownCerts(dir, renewed, time.Now())
			return show(c, fields{map[string]any{"renewed": certs}}, func(w io.Writer) {
				if len(certs) == 0 {
					fmt.Fprintf(w, "no certificate expires within %s\n", count(uint64(within), "day"))
					return
				}
				writeCerts(w, certs)
				fmt.Fprintln(w, "Copy the new certificates and keys to their nodes and clients.")
			})
		},
	}
}
