package bench

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/quorumlock/quorumlock/client"
)

// Connection is one connection to a cluster, shared by its sessions.
type Connection interface {
	Open(context.Context) (Session, error)
	Close() error
}

// Session is what a worker needs of a session.
type Session interface {
	Lock(ctx context.Context, name string, shared bool) (Hold, error)
	// Lost returns a channel that is closed when the session is lost.
	Lost() <-chan struct{}
	Close(context.Context) error
}

// Hold is a lock held.
type Hold interface {
	Token() uint64
	// Context returns a context that ends with the hold.
	Context() context.Context
	Unlock(context.Context) error
}

// SDK returns a function that connects through the public SDK. Sessions are opened with opts, and locks that are not
// shared are acquired with the options in exclusive.
func SDK(cfg client.Config, opts client.SessionOptions, exclusive ...client.LockOption) func() (Connection, error) {
	return func() (Connection, error) {
		c, err := client.New(cfg)
		if err != nil {
			return nil, err
		}
		return connection{c, opts, exclusive}, nil
	}
}

type connection struct {
	*client.Client
	opts      client.SessionOptions
	exclusive []client.LockOption
}

func (c connection) Open(ctx context.Context) (Session, error) {
	s, err := c.NewSession(ctx, c.opts)
	if err != nil {
		return nil, err // not a typed nil
	}
	return session{s, c.exclusive}, nil
}

type session struct {
	*client.Session
	exclusive []client.LockOption
}

// readers are the options of shared locks.
var readers = []client.LockOption{client.WithShared()}

func (s session) Lock(ctx context.Context, name string, shared bool) (Hold, error) {
	opts := s.exclusive
	if shared {
		opts = readers
	}
	h, err := s.Session.Lock(ctx, name, opts...)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// refusals are the statuses of requests that the cluster refuses however often they are sent.
var refusals = []client.Status{client.StatusInvalidArgument, client.StatusFailedPrecondition, client.StatusUnsupported, client.StatusPermissionDenied}

// refused reports whether the cluster would refuse the same request again. Such an error ends the measurement: the
// settings may forbid cached locks or so long an idle time.
func refused(err error) bool {
	s := (*client.StatusError)(nil)
	return errors.As(err, &s) && slices.Contains(refusals, s.Status)
}

// nameOf returns the name of an error in a report, which is the name of its status.
func nameOf(err error) string {
	if errors.Is(err, client.ErrSessionLost) {
		return "SESSION_LOST"
	}
	if s := (*client.StatusError)(nil); errors.As(err, &s) {
		return strings.ToUpper(s.Status.String())
	}
	return "OTHER"
}
