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
	// maxLeaseText is more than a lease is ever written as.
	maxLeaseText = 4096
)

// lease names a leased hold and proves the right to it: who has the text of it can
// extend and release the hold.
type lease struct {
	hold   uint64
	secret []byte
}

// newSecret is a fresh secret.
func newSecret() []byte {
	secret := make([]byte, leaseSecretBytes)
	rand.Read(secret) // it never fails
	return secret
}

// String is the lease as one word that no shell needs to quote.
func (l lease) String() string {
	return strconv.FormatUint(l.hold, 10) + "." + base64.RawURLEncoding.EncodeToString(l.secret)
}

// parseLease reads what String wrote of a lease that was granted.
func parseLease(text string) (lease, error) {
	l, err := parseWord(text)
	if err == nil && l.hold == 0 {
		err = errNoLease
	}
	return l, err
}

var errNoLease = usagef("that is no lease as qlock acquire wrote it")

// parseWord is parseLease, and takes hold 0, which is whatever the secret has. What a lease
// file has below its first line is left out. Its error does not repeat the secret.
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

// leaseFlags say which lease is meant.
func leaseFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "lease-file", Usage: "`FILE` that qlock acquire --lease-file wrote; - reads stdin"},
		&cli.StringFlag{Name: "lease", EnvVars: []string{leaseVariable},
			Usage: "the `LEASE` itself; on a command line other users of this machine can read it"},
	}
}

// leaseOf finds the lease that a command line means.
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
