package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/pki"
)

// tlsVerb manages certificates.
func tlsVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "tls",
		Usage: "create, renew and revoke the certificates of a cluster",
		Subcommands: []*cli.Command{
			issueVerb("init", "make an authority and certificates of nodes and clients", pki.Init),
			issueVerb("add", "make certificates of more nodes and clients from the same authority", pki.Extend),
			tlsRenewVerb(),
			tlsRevokeVerb(dial),
			tlsShowVerb(),
		},
	}
}

// dirFlag is the directory of all verbs but show.
func dirFlag() cli.Flag { return &cli.StringFlag{Name: "dir", Usage: "`DIRECTORY` for the files"} }

// daysFlag is for how long something is valid.
func daysFlag(standard, usage string) cli.Flag {
	return &cli.IntFlag{Name: "days", DefaultText: standard, Usage: usage}
}

const daysUsage = "`NUMBER` of days that the certificates are valid, at most as long as the authority"

// validFor returns the option for --days, none if it is not given.
func validFor(c *cli.Context) ([]pki.Option, error) {
	if !c.IsSet("days") {
		return nil, nil
	}
	days := c.Int("days")
	if days < 1 || days > maxDays {
		return nil, usagef("--days %d: use 1 to %d", days, maxDays)
	}
	return []pki.Option{pki.ValidFor(time.Duration(days) * day)}, nil
}

const (
	day = 24 * time.Hour
	// maxDays is the life of an authority.
	maxDays = 3650
)

// issuer creates certificates and returns the paths of the files.
type issuer func(dir, cluster string, nodes []pki.Node, clients []string, opts ...pki.Option) ([]string, error)

func issueVerb(name, usage string, issue issuer) *cli.Command {
	return &cli.Command{
		Name:  name,
		Usage: usage,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "cluster", Usage: "`ID` of the cluster, contained in every peer certificate"},
			&cli.StringSliceFlag{Name: "node", Usage: "`ID=HOST,HOST…`: a node and its host names and addresses; may be repeated"},
			&cli.StringSliceFlag{Name: "client", Usage: "`NAME` of a client; may be repeated"},
			dirFlag(),
			daysFlag("730", daysUsage),
		},
		Action: func(c *cli.Context) error {
			dir, cluster := c.String("dir"), c.String("cluster")
			if dir == "" || cluster == "" || len(arguments(c)) > 0 {
				return usagef("tls %s needs --cluster and --dir, as in qlock tls %s --cluster prod --node n1=10.0.0.1,n1.example --client ops --dir certs", name, name)
			}
			nodes, err := parseNodes(c.StringSlice("node"))
			if err != nil {
				return err
			}
			clients := c.StringSlice("client")
			if len(nodes)+len(clients) == 0 {
				return usagef("tls %s needs at least one --node or --client", name)
			}
			options, err := validFor(c)
			if err != nil {
				return err
			}
			if _, err := issue(dir, cluster, nodes, clients, options...); err != nil {
				return issueError(err)
			}
			made := describe(dir, nodes, clients)
			return show(c, fields{made}, func(w io.Writer) { writeMade(w, made) })
		},
	}
}

// issueError distinguishes errors that the caller can correct from unexpected ones.
func issueError(err error) error {
	if errors.Is(err, pki.ErrInvalid) || errors.Is(err, pki.ErrExists) {
		return usagef("%w", err)
	}
	return failf(exitInternal, "make certificates: %w", err)
}

// parseNodes parses ID=HOST,HOST… pairs.
func parseNodes(pairs []string) ([]pki.Node, error) {
	var nodes []pki.Node
	for _, pair := range pairs {
		id, hosts, _ := strings.Cut(pair, "=")
		if id == "" {
			return nil, usagef("--node %q is not ID=HOST,HOST", pair)
		}
		n := pki.Node{ID: id}
		if hosts != "" {
			n.Hosts = strings.Split(hosts, ",")
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// made lists the flags that use the certificates.
type made struct {
	Dir     string     `json:"dir"`
	CAKey   string     `json:"caKey"`
	Nodes   []flagsFor `json:"nodes"`
	Clients []flagsFor `json:"clients"`
}

// flagsFor are the flags of one program.
type flagsFor struct {
	Name  string   `json:"name"`
	Flags []string `json:"flags"`
}

func describe(dir string, nodes []pki.Node, clients []string) made {
	ca := filepath.Join(dir, "ca.crt")
	m := made{Dir: dir, CAKey: filepath.Join(dir, "ca.key"), Nodes: []flagsFor{}, Clients: []flagsFor{}}
	for _, n := range nodes {
		at := filepath.Join(dir, "nodes", n.ID)
		flags := certFlags("--tls-cert", "--tls-key", "--tls-ca", at, "server", ca)
		peer := certFlags("--peer-tls-cert", "--peer-tls-key", "--peer-tls-ca", at, "peer", ca)
		if crl := pki.CRLPath(dir); fileExists(crl) { // not in directories of earlier versions
			flags, peer = append(flags, "--tls-crl", crl), append(peer, "--peer-tls-crl", crl)
		}
		m.Nodes = append(m.Nodes, flagsFor{n.ID, slices.Concat(flags, peer)})
	}
	for _, name := range clients {
		at := filepath.Join(dir, "clients", name)
		m.Clients = append(m.Clients, flagsFor{name, certFlags("--cert", "--key", "--cacert", at, "client", ca)})
	}
	return m
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func certFlags(cert, key, authority, at, name, ca string) []string {
	return []string{
		cert, filepath.Join(at, name+".crt"),
		key, filepath.Join(at, name+".key"),
		authority, ca,
	}
}

// writeMade explains what to do with the files.
func writeMade(w io.Writer, m made) {
	fmt.Fprintf(w, "Keep %s away from the nodes: it signs for anybody who has it.\n", m.CAKey)
	for _, n := range m.Nodes {
		fmt.Fprintf(w, "\nNode %s:\n  qlockd --id %s", n.Name, n.Name)
		writeFlags(w, n.Flags)
	}
	for _, n := range m.Clients {
		fmt.Fprintf(w, "\nClient %s:\n  qlock", n.Name)
		writeFlags(w, n.Flags)
	}
}

// writeFlags writes one flag with its value per line, ready to paste into a shell.
func writeFlags(w io.Writer, flags []string) {
	for i := 0; i+1 < len(flags); i += 2 {
		fmt.Fprintf(w, " \\\n    %s %s", flags[i], shellQuote(flags[i+1]))
	}
	fmt.Fprintln(w)
}

// shellQuote quotes text that a shell would not take as one plain word.
func shellQuote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:,=+@%", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
