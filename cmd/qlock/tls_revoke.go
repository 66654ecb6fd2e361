package main

import (
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/pki"
)

// tlsRevokeVerb maintains the revocation list.
func tlsRevokeVerb() *cli.Command {
	return &cli.Command{
		Name:      "revoke",
		Usage:     "add certificates to the revocation list, crl.pem",
		ArgsUsage: "[CERTIFICATE…]",
		Description: "CERTIFICATE is a node, a client, or a file, such as n1, ops or nodes/n1/peer.crt. One that was replaced\n" +
			"since is named by its serial number, which qlock audit shows. Without any, the list is only renewed.\n" +
			"Copy the list to every node: --tls-crl and --peer-tls-crl name it, and nodes reload it within a second.",
		Flags: []cli.Flag{
			dirFlag(),
			&cli.StringSliceFlag{Name: "serial", Usage: "serial number of a certificate in `HEX`; may be repeated"},
			daysFlag("as long as the authority", "`NUMBER` of days that the list is valid; nodes do not start with one that is not"),
		},
		Action: func(c *cli.Context) error {
			dir := c.String("dir")
			if dir == "" {
				return usagef("tls revoke needs --dir, the directory of qlock tls init, as in qlock tls revoke ops --dir certs")
			}
			options, err := validFor(c)
			if err != nil {
				return err
			}
			crl, err := pki.Revoke(dir, arguments(c), c.StringSlice("serial"), options...)
			if err != nil {
				return issueError(err)
			}
			list := shownList{File: crl.Path, Number: crl.Number.String(), NextUpdate: crl.Next.UTC(), Entries: crl.Entries, Added: shownCerts(dir, crl.Added, time.Now())}
			return show(c, fields{list}, func(w io.Writer) { writeList(w, list) })
		},
	}
}

// shownList is a revocation list as it is shown.
type shownList struct {
	File       string      `json:"file"`
	Number     string      `json:"number"`
	NextUpdate time.Time   `json:"nextUpdate"`
	Entries    int         `json:"entries"`
	Added      []shownCert `json:"added"`
}

func writeList(w io.Writer, list shownList) {
	if len(list.Added) > 0 {
		writeCerts(w, list.Added)
	} else {
		fmt.Fprintln(w, "nothing new is revoked")
	}
	fmt.Fprintf(w, "%s is list %s, with %s, valid until %s. Copy it to every node (--tls-crl, --peer-tls-crl).\n",
		printable(list.File), list.Number, count(uint64(list.Entries), "certificate"), list.NextUpdate.Format(time.DateOnly))
}
