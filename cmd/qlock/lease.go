package main

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// leaseVariable is where scripts keep a lease.
	leaseVariable = "QLOCK_LEASE"
	// leaseSecretBytes is the length of a lease's secret.
	leaseSecretBytes = 32
	// maxLeaseText is longer than any lease in text form.
	maxLeaseText = 4096
)

// lease identifies a leased hold and proves the right to it: anyone who has its text can extend and release
// the hold.
type lease struct {
	hold   uint64
	secret []byte
}

// newSecret returns a random secret.
func newSecret() []byte {
	secret := make([]byte, leaseSecretBytes)
	rand.Read(secret) // it never fails
	return secret
}

// String returns the lease as one word that does not need quoting in a shell.
func (l lease) String() string {
	return strconv.FormatUint(l.hold, 10) + "." + base64.RawURLEncoding.EncodeToString(l.secret)
}

// parseLease parses the text of a granted lease.
func parseLease(text string) (lease, error) {
	l, err := parseWord(text)
	if err == nil && l.hold == 0 {
		err = errNoLease
	}
	return l, err
}

var errNoLease = usagef("that is no lease as qlock acquire wrote it")

// parseWord is parseLease, but also accepts hold 0, which stands for whatever the secret holds. It ignores
// the lines after the first, which a lease file has. Its error does not contain the secret.
func parseWord(text string) (lease, error) {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	id, secret, _ := strings.Cut(strings.TrimSpace(text), ".")
	var l lease
	var idErr, secretErr error
	l.hold, idErr = strconv.ParseUint(id, 10, 64)
	l.secret, secretErr = base64.RawURLEncoding.DecodeString(secret)
	if errors.Join(idErr, secretErr) != nil || wire.CheckSecret(l.secret) != nil {
		return lease{}, errNoLease
	}
	return l, nil
}

// leaseFlags select a lease.
func leaseFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "lease-file", Usage: "`FILE` written by qlock acquire --lease-file; - reads stdin"},
		&cli.StringFlag{Name: "lease", EnvVars: []string{leaseVariable},
			Usage: "the `LEASE` itself; other users of this machine can read it on a command line"},
	}
}

// leaseOf returns the lease that a command line selects.
func leaseOf(c *cli.Context) (lease, error) {
	if len(arguments(c)) > 0 {
		return lease{}, usagef("%s takes no arguments: the lease comes from %s or --lease-file", c.Command.Name, leaseVariable)
	}
	file := c.String("lease-file")
	if file == "" {
		if text := c.String("lease"); text != "" {
			return parseLease(text)
		}
		return lease{}, usagef("which lease? set %s, as eval \"$(qlock acquire NAME --export)\" does, or give --lease-file", leaseVariable)
	}
	text, err := readLease(c, file)
	if err != nil {
		return lease{}, err
	}
	r, err := parseRecord(text)
	return r.lease, err
}

func readLease(c *cli.Context, file string) (string, error) {
	in := c.App.Reader
	if file != "-" {
		f, err := os.Open(file)
		if errors.Is(err, os.ErrNotExist) {
			return "", failf(exitNotHeld, "no lease: %w", err)
		}
		if err != nil {
			return "", usagef("read the lease: %w", err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxLeaseText))
	if err != nil {
		return "", failf(exitInternal, "read the lease: %w", err)
	}
	return string(text), nil
}
