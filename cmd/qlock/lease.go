package main

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

// parseLease reads what String wrote. Its error does not repeat the secret.
func parseLease(text string) (lease, error) {
	id, secret, _ := strings.Cut(strings.TrimSpace(text), ".")
	var l lease
	var idErr, secretErr error
	l.hold, idErr = strconv.ParseUint(id, 10, 64)
	l.secret, secretErr = base64.RawURLEncoding.DecodeString(secret)
	if errors.Join(idErr, secretErr) != nil || l.hold == 0 || wire.CheckSecret(l.secret) != nil {
		return lease{}, usagef("that is no lease as qlock acquire wrote it")
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
	return parseLease(text)
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

// writeLease writes a lease to a file that only its owner can read, all or nothing.
func writeLease(file string, l lease) error {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, l)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
