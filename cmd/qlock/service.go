package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// service is what the verbs ask of a cluster: the SDK, or a fake in tests.
type service interface {
	ListLocks(context.Context, *wire.ListLocksRequest) (*wire.ListLocksResponse, error)
	GetLock(context.Context, *wire.GetLockRequest) (*wire.GetLockResponse, error)
	ListSessions(context.Context, *wire.ListSessionsRequest) (*wire.ListSessionsResponse, error)
	Status(context.Context, *wire.StatusRequest) (*wire.StatusResponse, error)
	AddMember(context.Context, *wire.AddMemberRequest) (*wire.AddMemberResponse, error)
	RemoveMember(context.Context, *wire.RemoveMemberRequest) (*wire.RemoveMemberResponse, error)
	TransferLeadership(context.Context, *wire.TransferLeadershipRequest) (*wire.TransferLeadershipResponse, error)
	Open(context.Context, client.SessionOptions) (session, error)
	Close() error
}

// session is what run asks of a session.
type session interface {
	ID() uint64
	TTL() time.Duration
	// Lock waits for ever below 0, tries at 0 and waits at most that long above.
	Lock(ctx context.Context, name string, wait time.Duration) (hold, error)
	Close(context.Context) error
}

// hold is what run asks of a lock that it holds.
type hold interface {
	Token() uint64
	// Context ends, with the reason as its cause, when the hold does.
	Context() context.Context
	// Lost is closed when the hold ended other than by Unlock.
	Lost() <-chan struct{}
	// Remaining is the time to the local deadline.
	Remaining() time.Duration
	Unlock(context.Context) error
}

// dialer makes the service that a command line's flags describe. It does not connect.
type dialer func(*cli.Context) (service, error)

// dial is the dialer of the real program.
func dial(c *cli.Context) (service, error) {
	secure, err := clientTLS(c)
	if err != nil {
		return nil, err
	}
	sdk, err := client.New(client.Config{
		Endpoints: endpoints(c),
		TLS:       secure,
		Agent:     "qlock/" + build().Version,
	})
	if err != nil {
		return nil, usagef("%w", err)
	}
	return cluster{sdk}, nil
}

// endpoints are the addresses of --endpoints.
func endpoints(c *cli.Context) []string {
	var list []string
	for _, addr := range strings.Split(c.String("endpoints"), ",") {
		if addr = strings.TrimSpace(addr); addr != "" {
			list = append(list, addr)
		}
	}
	return list
}

// clientTLS is nil, plaintext, unless one of the certificate flags was given.
func clientTLS(c *cli.Context) (*tls.Config, error) {
	files := transport.TLSFiles{CA: c.String("cacert"), Cert: c.String("cert"), Key: c.String("key")}
	if files.IsZero() {
		return nil, nil
	}
	if (files.Cert == "") != (files.Key == "") {
		return nil, usagef("--cert and --key go together")
	}
	secure, err := files.ClientConfig()
	if err != nil {
		return nil, usagef("%w", err)
	}
	return secure, nil
}

// cluster is the service that the SDK provides.
type cluster struct{ *client.Client }

// Open opens a session.
func (c cluster) Open(ctx context.Context, opts client.SessionOptions) (session, error) {
	s, err := c.NewSession(ctx, opts)
	if err != nil {
		return nil, err
	}
	return opened{s}, nil
}

type opened struct{ *client.Session }

// Lock picks the SDK's call by the wait.
func (s opened) Lock(ctx context.Context, name string, wait time.Duration) (hold, error) {
	h, err := s.lock(ctx, name, wait)
	if err != nil {
		return nil, err // not a typed nil
	}
	return h, nil
}

func (s opened) lock(ctx context.Context, name string, wait time.Duration) (*client.Hold, error) {
	switch {
	case wait < 0:
		return s.Session.Lock(ctx, name)
	case wait == 0:
		return s.TryLock(ctx, name)
	default:
		return s.LockTimeout(ctx, name, wait)
	}
}

// withService runs a call that bounds itself.
func withService(c *cli.Context, dial dialer, call func(service) error) error {
	svc, err := dial(c)
	if err != nil {
		return err
	}
	defer svc.Close()
	return call(svc)
}

// ask runs one call against the cluster, bounded by the time-out.
func ask(c *cli.Context, dial dialer, standard time.Duration, call func(context.Context, service) error) error {
	return withService(c, dial, func(svc service) error {
		ctx, cancel := context.WithTimeout(c.Context, timeout(c, standard))
		defer cancel()
		return blame(c, call(ctx, svc))
	})
}

// blame names the endpoints in an error that says that nobody led.
func blame(c *cli.Context, err error) error {
	if exitCode(err) == exitNoLeader {
		return fmt.Errorf("no serving leader at %s: %w", strings.Join(endpoints(c), ","), err)
	}
	return err
}
