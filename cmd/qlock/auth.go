package main

import (
	"net/http"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/identity"
)

const (
	tokenVariable     = "QLOCK_AUTH_TOKEN"
	tokenFileVariable = "QLOCK_AUTH_TOKEN_FILE"
)

// authFlags set the token that proves this client's identity.
func authFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "auth-token", EnvVars: []string{tokenVariable},
			Usage: "`TOKEN` that proves this client's identity; other users of the machine can see it on the command line"},
		&cli.StringFlag{Name: "auth-token-file", EnvVars: []string{tokenFileVariable},
			Usage: "`FILE` with the token, read again for each connection"},
	}
}

// credential is a token or the file that contains it; at most one of the two is set.
type credential struct{ token, file string }

// credentialOf returns the credential of the command line, or else of the environment, or else of the chosen context.
func credentialOf(c *cli.Context) (credential, error) {
	chosen := credential{c.String("auth-token"), c.String("auth-token-file")}
	if chosen.token != "" && chosen.file != "" {
		// The library does not distinguish flags from variables.
		switch tokenIsFlag, fileIsFlag := chosen.token != os.Getenv(tokenVariable), chosen.file != os.Getenv(tokenFileVariable); {
		case tokenIsFlag == fileIsFlag:
			return credential{}, usagef("the token is given twice: leave out one of --auth-token and --auth-token-file, or of %s and %s", tokenVariable, tokenFileVariable)
		case fileIsFlag:
			chosen.token = ""
		default:
			chosen.file = ""
		}
	}
	if chosen == (credential{}) {
		saved, err := chosenContext(c)
		return credential{file: saved.AuthTokenFile}, err
	}
	return chosen, nil
}

// bearer adds the token, if there is one, to requests to HTTP ports.
type bearer struct {
	*http.Transport
	token string
}

// RoundTrip sends a copy of the request.
func (b bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	if b.token != "" {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.Transport.RoundTrip(req)
}

// bearerToken returns the token for the HTTP port at addr, or "" if none is configured. As with the client port, it is
// sent over TLS or to a loopback address only.
func (c cluster) bearerToken(addr string) (string, error) {
	token := c.cfg.AuthToken
	if c.cfg.AuthTokenFile != "" {
		text, err := os.ReadFile(c.cfg.AuthTokenFile)
		if err != nil {
			return "", usagef("read the token: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	if token == "" {
		return "", nil
	}
	if _, err := identity.HashToken(token); err != nil {
		return "", usagef("%s", strings.TrimPrefix(err.Error(), identity.ErrNone.Error()+": "))
	}
	if c.cfg.TLS == nil && transport.CheckPlaintext(addr, false) != nil {
		return "", usagef("the token is not sent to %s, because the connection is in plaintext: give the cluster's ca.crt with --cacert", printable(addr))
	}
	return token, nil
}
