package client

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// checkToken returns an error if the configured token cannot be used. No error contains the token.
func (c *Config) checkToken() error {
	if c.AuthToken != "" && c.AuthTokenFile != "" {
		return errors.New("quorumlock: AuthToken and AuthTokenFile are both set: leave one of them out")
	}
	token, err := c.token()
	if err != nil || token == "" {
		return err
	}
	for _, addr := range c.Endpoints {
		if err := c.checkConfidential(addr); err != nil {
			return err
		}
	}
	return nil
}

// token returns the token, or "" if none is configured. It reads the file each time, so that the file can be
// replaced.
func (c *Config) token() (string, error) {
	token, from := c.AuthToken, ""
	if c.AuthTokenFile != "" {
		text, err := os.ReadFile(c.AuthTokenFile)
		if err != nil {
			return "", unauthenticated("read the token: %v", err)
		}
		token, from = strings.TrimSpace(string(text)), c.AuthTokenFile+": "
	}
	if token == "" && from == "" {
		return "", nil
	}
	if _, err := identity.HashToken(token); err != nil {
		return "", unauthenticated("%s%s", from, strings.TrimPrefix(err.Error(), identity.ErrNone.Error()+": "))
	}
	return token, nil
}

// checkConfidential returns an error if others could read what is sent to that address.
func (c *Config) checkConfidential(addr string) error {
	if c.TLS != nil || isLoopback(addr) {
		return nil
	}
	return unauthenticated("the token is not sent to %s, because the connection is in plaintext: name the file with the cluster's authority (CACertFile, QLOCK_CACERT or --cacert)", addr)
}

// isLoopback does not resolve names, because a name may resolve to another address after the check.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "localhost" {
		return err == nil
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// credential returns the token to present to the node at that address, or "" if none is configured.
func (c *Config) credential(addr string) (string, error) {
	token, err := c.token()
	if err == nil && token != "" {
		err = c.checkConfidential(addr)
	}
	if err != nil {
		return "", err
	}
	return token, nil
}

func unauthenticated(format string, args ...any) error {
	return &StatusError{StatusUnauthenticated, fmt.Sprintf(format, args...)}
}

// refusalOf returns the error for callers if no connection can be made with this credential and these rights.
// Otherwise it returns nil.
func refusalOf(err error) error {
	var bye *transport.GoodbyeError
	var own *StatusError
	switch {
	case errors.As(err, &own) && own.Status == StatusUnauthenticated:
		return own
	case !errors.As(err, &bye):
		return nil
	case bye.Code == wire.Goodbye_UNAUTHENTICATED:
		return &StatusError{StatusUnauthenticated, bye.Message}
	case bye.Code == wire.Goodbye_PERMISSION_DENIED:
		return &StatusError{StatusPermissionDenied, bye.Message}
	}
	return nil
}

// noPlace returns the error for callers if a node has no place for another connection of this client, or nil.
func noPlace(err error) error {
	if bye := (*transport.GoodbyeError)(nil); errors.As(err, &bye) && bye.Code == wire.Goodbye_TOO_MANY_CONNECTIONS {
		return &StatusError{StatusResourceExhausted, bye.Message}
	}
	return nil
}

// refused fails the requests that a caller waits for. Those of sessions are not in these lists while there is no
// connection: a session continues to connect until its TTL has passed, in case the credential is replaced or the
// policy changes.
func (n *connector) refused(refusal error) {
	n.refusal = refusal
	n.client.note(slog.LevelError, "credential refused", "err", refusal)
	for _, l := range []*callList{&n.client.urgent, &n.client.ready, &n.client.anywhere} {
		for i := l.n; i > 0 && l.head != nil; i-- {
			k := l.pop()
			if k.done == nil && k.waiting == 0 && k.kind != kindWatch {
				l.push(k)
				continue
			}
			n.client.fail(k, k.refusedWith(refusal))
		}
	}
}

// refusedWith adds ErrUncertain to a refusal if the call may have been executed on an earlier connection.
func (k *call) refusedWith(refusal error) error {
	if !k.uncertain() || k.kind == kindRead || k.kind == kindWatch {
		return refusal
	}
	return &reason{refusal.Error() + "; whether the request was executed before is unknown", []error{ErrUncertain, refusal}}
}

// expiry returns why a session has expired.
func (n *connector) expiry() error {
	if n.refusal == nil {
		return ErrExpired
	}
	return &reason{ErrExpired.Error() + ": " + strings.TrimPrefix(n.refusal.Error(), "quorumlock: "), []error{ErrExpired, n.refusal}}
}
