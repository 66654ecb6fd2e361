package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/pki"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// tlsRevokeVerb maintains the revocation list.
func tlsRevokeVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "revoke",
		Usage:     "add certificates to the revocation list, crl.pem",
		ArgsUsage: "[CERTIFICATE…]",
		Description: "CERTIFICATE is a node, a client, or a file, such as n1, ops or nodes/n1/peer.crt. One that was replaced\n" +
			"since is named by its serial number, which qlock audit shows. Without any, the list is only renewed.\n" +
			"Copy the list to every node: --tls-crl and --peer-tls-crl name it, and nodes reload it within a second.\n\n" +
			"The cluster is not needed, except for --close-sessions: sessions of the revoked identities expire by\n" +
			"their TTL otherwise. A node without the new list accepts the certificate and so new sessions: repeat\n" +
			"the command with --close-sessions when all nodes have it.",
		Flags: append([]cli.Flag{
			dirFlag(),
			&cli.StringSliceFlag{Name: "serial", Usage: "serial number of a certificate in `HEX`; may be repeated"},
			daysFlag("as long as the authority", "`NUMBER` of days that the list is valid; nodes do not start with one that is not"),
			closeSessionsFlag("the identities of the certificates"),
		}, reasonFlags()...),
		Action: func(c *cli.Context) error {
			dir := c.String("dir")
			if dir == "" {
				return usagef("tls revoke needs --dir, the directory of qlock tls init, as in qlock tls revoke ops --dir certs")
			}
			options, err := validFor(c)
			if err != nil {
				return err
			}
			request := &wire.ForceClose{}
			if c.Bool("close-sessions") {
				by, err := reasonOf(c)
				if err != nil {
					return err
				}
				request.Reason, request.Operator, request.Ticket = by.Reason, by.Operator, by.Ticket
			}
			crl, err := pki.Revoke(dir, arguments(c), c.StringSlice("serial"), options...)
			if err != nil {
				return issueError(err)
			}
			return revoked(c, dial, crl, request)
		},
	}
}

// revoked closes the sessions of the identities of revoked certificates if that was asked for, and shows the list.
func revoked(c *cli.Context, dial dialer, crl *pki.CRL, request *wire.ForceClose) error {
	list := shownList{
		File: crl.Path, Number: crl.Number.String(), NextUpdate: crl.Next.UTC(), Entries: crl.Entries,
		Added: shownCerts(c.String("dir"), crl.Added, time.Now()), Closed: []string{},
	}
	clients := clientsOf(crl.Named)
	var failed error
	if c.Bool("close-sessions") {
		list.Closed, failed = closeSessions(c, dial, clients, request)
		clients = clients[len(list.Closed):]
	}
	if err := show(c, fields{list}, func(w io.Writer) { writeList(w, list, clients) }); err != nil {
		return err
	}
	if failed == nil && c.Bool("close-sessions") && slices.ContainsFunc(crl.Named, func(c pki.Certificate) bool { return c.Cert == nil }) {
		return failf(exitNoSuch, "the certificate is revoked, but only its serial number is known here: close the sessions of its identity, "+
			"which qlock audit shows, with qlock session close --identity NAME")
	}
	return failed
}

// clientsOf returns the identities of the certificates that identify clients.
func clientsOf(certs []pki.Certificate) (names []string) {
	for _, c := range certs {
		if c.Cert == nil {
			continue
		}
		if caller, err := identity.FromCertificate(c.Cert, ""); err == nil {
			names = append(names, caller.GetIdentity())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// closeSessions ends the sessions of identities, and returns those that it has ended, which are the first ones.
func closeSessions(c *cli.Context, dial dialer, identities []string, request *wire.ForceClose) (closed []string, err error) {
	closed = []string{}
	if len(identities) == 0 {
		return closed, nil
	}
	err = ask(c, dial, openTimeout, func(ctx context.Context, svc service) error {
		for _, name := range identities {
			one := &wire.ForceClose{Identity: name, Reason: request.GetReason(), Operator: request.GetOperator(), Ticket: request.GetTicket()}
			if _, err := svc.ForceClose(ctx, one); err != nil {
				return fmt.Errorf("the sessions of %s: %w", printable(name), err)
			}
			closed = append(closed, name)
		}
		return nil
	})
	return closed, err
}

// shownList is a revocation list as it is shown.
type shownList struct {
	File       string      `json:"file"`
	Number     string      `json:"number"`
	NextUpdate time.Time   `json:"nextUpdate"`
	Entries    int         `json:"entries"`
	Added      []shownCert `json:"added"`
	// Closed are the identities whose sessions were closed.
	Closed []string `json:"closed"`
}

// writeList writes the list for people, with the clients whose sessions go on.
func writeList(w io.Writer, list shownList, clients []string) {
	if len(list.Added) > 0 {
		writeCerts(w, list.Added)
	} else {
		fmt.Fprintln(w, "nothing new is revoked")
	}
	fmt.Fprintf(w, "%s is list %s, with %s, valid until %s. Copy it to every node (--tls-crl, --peer-tls-crl).\n",
		printable(list.File), list.Number, count(uint64(list.Entries), "certificate"), list.NextUpdate.Format(time.DateOnly))
	if len(list.Closed) > 0 {
		fmt.Fprintf(w, "The sessions of %s are closed.\n", nameList(list.Closed))
	}
	if len(clients) > 0 {
		fmt.Fprintf(w, "The sessions of %s expire by their TTL; to close them when all nodes have the list, repeat this with --close-sessions.\n",
			nameList(clients))
	}
}
