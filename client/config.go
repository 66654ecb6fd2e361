package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/internal/contexts"
	"github.com/quorumlock/quorumlock/transport"
)

// Config configures a Client. Only Endpoints is required.
type Config struct {
	// Endpoints are the host:port addresses of the session protocol ports of one or more nodes, in any
	// order. The client learns the leader's address from the node that answers.
	Endpoints []string
	// TLS secures the connection. If ServerName is empty, the host of the endpoint is used. If TLS is nil and
	// none of the following files is named, the connection is in plaintext.
	TLS *tls.Config
	// CACertFile is the PEM file with the authority that signed the nodes' certificates; without it, that of
	// the system. CertFile and KeyFile are this client's certificate and key. The files are read again when
	// they change.
	CACertFile, CertFile, KeyFile string
	// AuthToken is a token that proves the client's identity, instead of or beside a certificate. It is not a
	// fencing token. AuthTokenFile names a file with the token, which is read again for every connection, so
	// that the token can be replaced. At most one of the two may be set. Without TLS, a token is sent only to
	// loopback addresses; to other addresses the client does not connect.
	AuthToken, AuthTokenFile string
	// Dial opens the network connection to an address, before TLS; nil means TCP. It should return when ctx ends. If it
	// does not, the client tries other nodes meanwhile; the same holds for the functions of TLS.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Clock measures session deadlines; nil means the system's clock that includes suspended time. It must not block.
	Clock Clock
	// Logger receives connection and session state changes; nil disables logging. Its handler runs in a goroutine of its
	// own and delays nothing. 256 lines wait for it; more are dropped, and a later line says how many. A panic ends the
	// program.
	Logger *slog.Logger
	// Hooks observe acquires and holds.
	Hooks Hooks
	// Agent names the program in the nodes' logs. Control characters and invalid UTF-8 are replaced, and
	// anything beyond 128 bytes is cut off.
	Agent string
	// RequestTimeout bounds reads, administration requests and NewSession if the caller's ctx has no
	// deadline. 0 means no bound.
	RequestTimeout time.Duration

	err error // of FromEnv, returned by New
}

// check returns an error if the configuration cannot work.
func (c *Config) check() error {
	if c.err != nil {
		return c.err
	}
	if len(c.Endpoints) == 0 {
		return errors.New("quorumlock: no endpoints: give host:port of at least one node")
	}
	for _, addr := range c.Endpoints {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return fmt.Errorf("quorumlock: endpoint %q is not host:port: %w", addr, err)
		}
	}
	if c.RequestTimeout < 0 {
		return fmt.Errorf("quorumlock: request time-out %v is negative", c.RequestTimeout)
	}
	if err := c.loadTLS(); err != nil {
		return err
	}
	return c.checkToken()
}

// loadTLS sets TLS from the files, if there are any.
func (c *Config) loadTLS() (err error) {
	files := transport.TLSFiles{CA: c.CACertFile, Cert: c.CertFile, Key: c.KeyFile}
	switch {
	case files.IsZero():
		return nil
	case c.TLS != nil:
		return errors.New("quorumlock: TLS and certificate files are both set: leave one of them out")
	case (files.Cert == "") != (files.Key == ""):
		return errors.New("quorumlock: a certificate and its key go together: name both files")
	}
	if c.TLS, err = files.ClientConfig(); err != nil {
		return fmt.Errorf("quorumlock: %w", err)
	}
	return nil
}

// FromEnv returns the configuration that the environment describes, with the variables of qlock:
//
//	QLOCK_CONTEXT          name of a context that qlock context has saved; other variables override its values
//	QLOCK_ENDPOINTS        host:port of one or more nodes, comma separated; 127.0.0.1:7400 if unset
//	QLOCK_CACERT           Config.CACertFile
//	QLOCK_CERT             Config.CertFile
//	QLOCK_KEY              Config.KeyFile
//	QLOCK_AUTH_TOKEN       Config.AuthToken
//	QLOCK_AUTH_TOKEN_FILE  Config.AuthTokenFile
//	QLOCK_TIMEOUT          Config.RequestTimeout, such as 2s
//
// QLOCK_TOKEN is no credential: it is the fencing token that qlock run passes to its command.
//
// The caller can change and add fields. If a value is invalid, [New] returns an error that names it.
func FromEnv() Config {
	chosen, err := environmentContext()
	cfg := Config{
		Endpoints:  chosen.Endpoints,
		CACertFile: cmp.Or(os.Getenv("QLOCK_CACERT"), chosen.CACert),
		CertFile:   cmp.Or(os.Getenv("QLOCK_CERT"), chosen.Cert),
		KeyFile:    cmp.Or(os.Getenv("QLOCK_KEY"), chosen.Key),
		AuthToken:  os.Getenv("QLOCK_AUTH_TOKEN"),
		err:        err,
	}
	if cfg.AuthTokenFile = os.Getenv("QLOCK_AUTH_TOKEN_FILE"); cfg.AuthToken == "" && cfg.AuthTokenFile == "" {
		cfg.AuthTokenFile = chosen.AuthTokenFile
	}
	if list := os.Getenv("QLOCK_ENDPOINTS"); list != "" || len(chosen.Endpoints) == 0 {
		cfg.Endpoints = SplitEndpoints(cmp.Or(list, defaultEndpoint))
	}
	if text := os.Getenv("QLOCK_TIMEOUT"); text != "" {
		var err error
		if cfg.RequestTimeout, err = time.ParseDuration(text); err != nil {
			cfg.err = fmt.Errorf("quorumlock: QLOCK_TIMEOUT %q is no duration: give one such as 2s", text)
		}
	}
	return cfg
}

// environmentContext returns the context that QLOCK_CONTEXT names. It is empty if the variable is not set.
func environmentContext() (contexts.Context, error) {
	name := os.Getenv("QLOCK_CONTEXT")
	if name == "" {
		return contexts.Context{}, nil
	}
	file, err := contexts.Load()
	if err != nil {
		return contexts.Context{}, fmt.Errorf("quorumlock: %w", err)
	}
	chosen, err := file.Get(name)
	if err != nil {
		return contexts.Context{}, fmt.Errorf("quorumlock: QLOCK_CONTEXT: %w", err)
	}
	return chosen, nil
}

// SplitEndpoints splits a comma separated list of endpoints as FromEnv and qlock do. A scheme, such as tcp://,
// is left out, and an endpoint without a port gets that of the client port, 7400.
func SplitEndpoints(list string) (endpoints []string) {
	for addr := range strings.SplitSeq(list, ",") {
		addr = strings.TrimSpace(addr)
		if _, rest, found := strings.Cut(addr, "://"); found {
			addr = strings.TrimRight(rest, "/")
		}
		if addr == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			if host := strings.Trim(addr, "[]"); !strings.Contains(host, ":") || net.ParseIP(host) != nil {
				addr = net.JoinHostPort(host, defaultPort)
			}
		}
		endpoints = append(endpoints, addr)
	}
	return endpoints
}

const (
	// defaultEndpoint is the client port of a node on this machine.
	defaultEndpoint = "127.0.0.1:7400"
	defaultPort     = "7400"
)

// SessionOptions configures a session.
type SessionOptions struct {
	// TTL is how long the session outlives its last heartbeat, in whole milliseconds; 0 means the cluster's
	// default. A TTL outside the cluster's range is an error.
	TTL time.Duration
	// Name and Labels describe the client to people who inspect a lock. They must be UTF-8 without control
	// characters; other text is refused with ErrInvalidArgument.
	Name   string
	Labels map[string]string
}

// State is the state of a session as the client knows it.
type State int32

// The states of a session. Lost and Closed are final.
const (
	// Active means that heartbeats are acknowledged.
	Active State = iota + 1
	// Jeopardy means that a heartbeat is overdue. The session still owns its locks.
	Jeopardy
	// Lost means that all holds and waits of the session have ended.
	Lost
	// Closed is Lost after [Session.Close] or [Client.Close].
	Closed
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Active:
		return "active"
	case Jeopardy:
		return "jeopardy"
	case Lost:
		return "lost"
	case Closed:
		return "closed"
	}
	return fmt.Sprintf("State(%d)", int32(s))
}
