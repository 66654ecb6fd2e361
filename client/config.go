package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// Config configures a Client. Only Endpoints is required.
type Config struct {
	// Endpoints are the host:port addresses of the session protocol ports of one or more nodes, in any
	// order. The client learns the leader's address from the node that answers.
	Endpoints []string
	// TLS secures the connection; nil means plaintext. If ServerName is empty, the host of the endpoint is
	// used.
	TLS *tls.Config
	// Dial opens the network connection to an address, before TLS; nil means TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Clock measures session deadlines; nil means CLOCK_BOOTTIME where the system has it.
	Clock Clock
	// Logger receives connection and session state changes; nil disables logging.
	Logger *slog.Logger
	// Agent names the program in the nodes' logs. Control characters and invalid UTF-8 are replaced, and
	// anything beyond 128 bytes is cut off.
	Agent string
	// RequestTimeout bounds reads, administration requests and NewSession if the caller's ctx has no
	// deadline. 0 means no bound.
	RequestTimeout time.Duration
}

// check returns an error if the configuration cannot work.
func (c *Config) check() error {
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
	return nil
}

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

// The states of a session. Lost is final.
const (
	// Active means that heartbeats are acknowledged.
	Active State = iota + 1
	// Jeopardy means that a heartbeat is overdue. The session still owns its locks.
	Jeopardy
	// Lost means that all holds and waits of the session have ended.
	Lost
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
	}
	return fmt.Sprintf("State(%d)", int32(s))
}
