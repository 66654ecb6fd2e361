package lease

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/pending"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// Grace is how long an acquire whose callers have gone is kept for a repetition: as long as its wait lives without
	// one.
	Grace = fsm.LeaseWaitTTL * time.Millisecond
	// cancelTimeout bounds the release of what is kept for nobody.
	cancelTimeout = 5 * time.Second
)

// ErrStopping is the cause of a caller's context that ends because this node stops. The caller goes on at another node.
var ErrStopping = errors.New("this node is stopping")

// Service acquires leases for the callers of all ports of a node. It is safe for concurrent use.
type Service struct {
	node    Node
	log     hclog.Logger
	pending *pending.Requests
}

// NewService returns the service of a node. An acquire that its last caller has left is ended after the grace period,
// at once if that is not positive.
func NewService(node Node, grace time.Duration, log hclog.Logger) *Service {
	s := &Service{node: node, log: log}
	s.pending = pending.New(grace, s.release)
	return s
}

// Acquire acquires a lease for the caller of ctx and returns the final outcome. If ctx ends before that is told, Acquire
// returns its error. Unless the request is repeated, its wait then ends within the grace period, and so does its hold.
func (s *Service) Acquire(ctx context.Context, from identity.Sender, open *wire.OpenLease) (*wire.Result, error) {
	key := keyOf(identity.FromContext(ctx).GetIdentity(), open)
	req, _, err := s.pending.Enter(ctx, key, func() bool { return s.confirmed(key) })
	if err != nil {
		return nil, err
	}
	res, err := acquire(ctx, s.node, from, open)
	if err == nil && res.GetStatus() == wire.Status_GRANTED && !s.pending.Deliver(ctx, req) {
		err = ctx.Err()
	}
	s.pending.Leave(req, err != nil && !errors.Is(context.Cause(ctx), ErrStopping))
	if err != nil {
		return nil, err
	}
	return res, nil
}

// Close ends the acquires without callers at once, and waits for that.
func (s *Service) Close() { s.pending.Close() }

// Len returns the number of acquires, and of those without callers.
func (s *Service) Len() (all, abandoned int) { return s.pending.Len() }

func keyOf(caller string, open *wire.OpenLease) pending.Key {
	key := pending.Key{Identity: caller, Digest: (&wire.Command{Op: &wire.Command_OpenLease{OpenLease: open}}).Digest()}
	copy(key.Lease[:], open.GetSecretHash())
	return key
}

// latest returns the latest outcome under a secret, or nil if there is none. It may belong to another request.
func (s *Service) latest(key pending.Key) (res *wire.Result, unconfirmed bool) {
	s.node.View(func(m *fsm.Machine) {
		leased, _ := m.SessionBySecret(key.Lease[:])
		res, _ = m.Outcome(leased.ID, Seq)
		unconfirmed = leased.Unconfirmed
	})
	return res, unconfirmed
}

// confirmed reports whether a caller may know of the grant. Nobody is told of one that is not confirmed.
func (s *Service) confirmed(key pending.Key) bool {
	res, unconfirmed := s.latest(key)
	return res.GetStatus() == wire.Status_GRANTED && res.GetDigest() == key.Digest && !unconfirmed
}

// release ends an acquire without remaining callers. No caller was told of its grant.
func (s *Service) release(key pending.Key) {
	if res, _ := s.latest(key); res != nil && res.GetDigest() != key.Digest {
		return // the secret belongs to another request, so this one was refused
	}
	answered := make(chan *wire.Result, 1)
	s.node.ProposeFrom(identity.Sender{Identity: key.Identity}, &wire.Command{Caller: &wire.Caller{Identity: key.Identity}, Op: &wire.Command_ReleaseLease{
		ReleaseLease: &wire.ReleaseLease{SecretHash: key.Lease[:]},
	}}, func(res *wire.Result) { answered <- res })
	timeout := time.NewTimer(cancelTimeout)
	defer timeout.Stop()
	select {
	case res := <-answered:
		switch res.GetStatus() {
		case wire.Status_OK, wire.Status_NOT_HELD:
			s.log.Info("ended an abandoned acquire", "lease", true, "outcome", res.GetStatus().String())
		default:
			s.log.Warn("cannot cancel an abandoned acquire: it ends by its TTL", "lease", true, "status", res.GetStatus().String(), "message", res.GetMessage())
		}
	case <-timeout.C:
		s.log.Warn("cannot cancel an abandoned acquire: it ends by its TTL", "lease", true)
	}
}
