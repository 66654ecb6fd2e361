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

// Config says how to reach a cluster. Only Endpoints is required.
type Config struct {
	// Endpoints are host:port of nodes' framed ports, any of them in any order. The
	// client learns the leader's address from whichever answers.
	Endpoints []string
	// TLS secures the connection; nil is plaintext. An empty ServerName takes the
	// host of the endpoint.
	TLS *tls.Config
	// Dial opens the bytes' way to an address, before TLS; nil is TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Clock decides over sessions' deadlines; nil is CLOCK_BOOTTIME where there is one.
	Clock Clock
	// Logger gets connection and session changes; nil logs nothing.
	Logger *slog.Logger
	// Agent names the program in the nodes' logs. Control characters, and what is not UTF-8
	// or beyond 128 bytes, are replaced or cut off.
	Agent string
	// RequestTimeout bounds reads, administration and NewSession where the caller's
	// ctx has no deadline of its own. 0 sets no bound.
	RequestTimeout time.Duration
}

// check refuses what cannot work, before anything is started.
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

// SessionOptions shape a session.
type SessionOptions struct {
	// TTL is how long the session outlives its last heartbeat, in whole
	// milliseconds; 0 takes the cluster's default. Out of the cluster's range is an error.
	TTL time.Duration
	// Name and Labels show people which client holds a lock: UTF-8 without control
	// characters. Other text is refused with ErrInvalidArgument.
	Name   string
	Labels map[string]string
}

// State is what a session knows of itself.
type State int32

// The states of a session. Lost is final.
const (
	// Active: heartbeats are acknowledged.
	Active State = iota + 1
	// Jeopardy: a heartbeat is overdue; what is held is held still, so far.
	Jeopardy
	// Lost: everything held and waited for is gone.
	Lost
)

// String names the state in lower case.
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
