package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/cmd/buildinfo"
	"github.com/quorumlock/quorumlock/cmd/qlock/bench"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// service is what the verbs need of a cluster: the SDK, or a fake in tests.
type service interface {
	ListLocks(context.Context, *wire.ListLocksRequest) (*wire.ListLocksResponse, error)
	GetLock(context.Context, *wire.GetLockRequest) (*wire.GetLockResponse, error)
	ListSessions(context.Context, *wire.ListSessionsRequest) (*wire.ListSessionsResponse, error)
	Status(context.Context, *wire.StatusRequest) (*wire.StatusResponse, error)
	VerifyToken(context.Context, *wire.VerifyTokenRequest) (*wire.VerifyTokenResponse, error)
	ListDeadlocks(context.Context, *wire.ListDeadlocksRequest) (*wire.ListDeadlocksResponse, error)
	ListContended(context.Context, *wire.ListContendedRequest) (*wire.ListContendedResponse, error)
	ListSamples(context.Context, *wire.ListSamplesRequest) (*wire.ListSamplesResponse, error)
	GetSession(context.Context, *wire.GetSessionRequest) (*wire.GetSessionResponse, error)
	ListAudit(context.Context, *wire.ListAuditRequest) (*wire.ListAuditResponse, error)
	WhoAmI(context.Context, *wire.WhoAmIRequest) (*wire.WhoAmIResponse, error)
	GetPolicy(context.Context, *wire.GetPolicyRequest) (*wire.GetPolicyResponse, error)
	TestPolicy(context.Context, *wire.TestPolicyRequest) (*wire.TestPolicyResponse, error)
	ListTokens(context.Context, *wire.ListTokensRequest) (*wire.ListTokensResponse, error)
	GetQuota(context.Context, *wire.GetQuotaRequest) (*wire.GetQuotaResponse, error)
	// GetQuotaAt asks the node whose HTTP port is at addr.
	GetQuotaAt(ctx context.Context, addr string, req *wire.GetQuotaRequest) (*wire.GetQuotaResponse, error)
	// ExamineAt asks the node whose HTTP port is at addr to examine itself.
	ExamineAt(ctx context.Context, addr string) (*wire.StatusResponse, *wire.ListSamplesResponse, error)
	// Watch starts where the options say. Errors are returned by Next.
	Watch(client.WatchOptions) watcher
	// WatchAudit starts now.
	WatchAudit() watcher

	AddMember(context.Context, *wire.AddMemberRequest) (*wire.AddMemberResponse, error)
	RemoveMember(context.Context, *wire.RemoveMemberRequest) (*wire.RemoveMemberResponse, error)
	SetDrained(context.Context, *wire.SetDrainedRequest) (*wire.SetDrainedResponse, error)
	TransferLeadership(context.Context, *wire.TransferLeadershipRequest) (*wire.TransferLeadershipResponse, error)
	AcknowledgeAlarms(context.Context, *wire.AcknowledgeAlarmsRequest) (*wire.AcknowledgeAlarmsResponse, error)
	ForceRelease(context.Context, *wire.ForceRelease) (*wire.OperatorResponse, error)
	Revoke(context.Context, *wire.Revoke) (*wire.OperatorResponse, error)
	SkipDelay(context.Context, *wire.SkipDelay) (*wire.OperatorResponse, error)
	Resize(context.Context, *wire.Resize) (*wire.OperatorResponse, error)
	ForceClose(context.Context, *wire.ForceClose) (*wire.OperatorResponse, error)
	Restore(context.Context, *wire.RestoreRequest) (*wire.RestoreResponse, error)
	SetPolicy(context.Context, *wire.SetPolicy) (*wire.OperatorResponse, error)
	CreateToken(context.Context, *wire.CreateTokenRequest) (*wire.CreateTokenResponse, error)
	RevokeToken(context.Context, *wire.RevokeToken) (*wire.OperatorResponse, error)
	// SaveSnapshot writes a snapshot from the HTTP port at addr. If it is stale, SaveSnapshot returns its
	// description.
	SaveSnapshot(ctx context.Context, addr string, req *wire.SaveSnapshotRequest, to io.Writer) (*wire.StaleSnapshot, error)
	// Metrics writes the metrics of the node whose HTTP port is at addr.
	Metrics(ctx context.Context, addr string, to io.Writer) error
	// Connector returns a function that opens separate connections, whose sessions and exclusive locks have these
	// options.
	Connector(client.SessionOptions, ...client.LockOption) func() (bench.Connection, error)

	Open(context.Context, client.SessionOptions) (session, error)
	AcquireLease(context.Context, leaseRequest) (leased, error)
	// ExtendLease keeps the lease's TTL if ttl is 0.
	ExtendLease(ctx context.Context, secret []byte, hold uint64, ttl time.Duration) error
	// ReleaseLease releases any hold of the secret, or cancels its wait, if hold is 0.
	ReleaseLease(ctx context.Context, secret []byte, hold uint64) error
	Close() error
}

// watcher returns events in order.
type watcher interface {
	// Next waits for events or a progress mark. Its error is final.
	Next(context.Context) (wirecall.Batch, error)
	Close()
}

// session is what run needs of a session.
type session interface {
	ID() uint64
	TTL() time.Duration
	// Remaining returns the time until the local deadline of the session and of all its holds.
	Remaining() time.Duration
	Lock(context.Context, claim) (hold, error)
	// Begin prepares a run of the job whose lock is held, or returns nil if it is done.
	Begin(ctx context.Context, h hold, name string, keep time.Duration) (onceRun, error)
	Close(context.Context) error
}

// onceRun is a run of a job that is done once.
type onceRun interface {
	// Record records that the job is done.
	Record(context.Context) error
}

// hold is what run needs of a hold.
type hold interface {
	Token() uint64
	// Context returns a context that ends with the hold, with the reason as its cause.
	Context() context.Context
	// Lost returns a channel that is closed when the hold ends in any way other than Unlock.
	Lost() <-chan struct{}
	// Remaining returns the time until the local deadline of the session or of the hold itself.
	Remaining() time.Duration
	// Revoked returns a channel with operators' requests to release the hold. It is closed when the hold
	// ends.
	Revoked() <-chan client.Revocation
	Unlock(context.Context) error
}

// dialer returns the service that a command line's flags describe. It does not connect.
type dialer func(*cli.Context) (service, error)

// dial is the dialer of the real program.
func dial(c *cli.Context) (service, error) {
	secure, err := clientTLS(c)
	if err != nil {
		return nil, err
	}
	own, err := credentialOf(c)
	if err != nil {
		return nil, err
	}
	cfg := client.Config{
		Endpoints:     endpoints(c),
		TLS:           secure,
		AuthToken:     own.token,
		AuthTokenFile: own.file,
		Agent:         "qlock/" + buildinfo.Read(version).Version,
	}
	sdk, err := client.New(cfg)
	switch {
	case errors.Is(err, client.ErrUnauthenticated):
		return nil, usagef("%s", said(err))
	case err != nil:
		return nil, usagef("%w", err)
	}
	return cluster{sdk, wirecall.Of(sdk), cfg}, nil
}

// endpoints returns the addresses of --endpoints, or of the chosen context.
func endpoints(c *cli.Context) []string {
	if chosen, err := chosenContext(c); err == nil && len(chosen.Endpoints) > 0 && !c.IsSet("endpoints") {
		return chosen.Endpoints
	}
	return client.SplitEndpoints(c.String("endpoints"))
}

// clientTLS returns nil, for plaintext, unless one of the certificate flags is set.
func clientTLS(c *cli.Context) (*tls.Config, error) {
	chosen, err := chosenContext(c)
	if err != nil {
		return nil, err
	}
	files := transport.TLSFiles{CA: cmp.Or(c.String("cacert"), chosen.CACert), Cert: cmp.Or(c.String("cert"), chosen.Cert), Key: cmp.Or(c.String("key"), chosen.Key)}
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

// cluster implements service with the SDK.
type cluster struct {
	*client.Client
	wirecall.Calls
	cfg client.Config
}

// VerifyToken is that of the SDK, with the whole answer.
func (c cluster) VerifyToken(ctx context.Context, req *wire.VerifyTokenRequest) (*wire.VerifyTokenResponse, error) {
	resp, err := wirecall.Do(ctx, c.Client, wirecall.Read, &wire.Request{Body: &wire.Request_VerifyToken{VerifyToken: req}})
	return resp.GetVerifyToken(), err
}

// Connector opens connections to the same cluster.
func (c cluster) Connector(opts client.SessionOptions, exclusive ...client.LockOption) func() (bench.Connection, error) {
	return bench.SDK(c.cfg, opts, exclusive...)
}

// Watch returns a watcher that lasts until it is closed.
func (c cluster) Watch(what client.WatchOptions) watcher {
	return sdkWatcher{c.Client.Watch(context.Background(), what)}
}

// WatchAudit is Watch for audit records.
func (c cluster) WatchAudit() watcher { return c.Calls.WatchAudit(context.Background(), "", 0) }

type sdkWatcher struct{ *client.Watcher }

// Next returns the events in wire format.
func (w sdkWatcher) Next(ctx context.Context) (wirecall.Batch, error) {
	return wirecall.Next(ctx, w.Watcher)
}

// AcquireLease acquires locks without a session.
func (c cluster) AcquireLease(ctx context.Context, req leaseRequest) (leased, error) {
	opts := []client.LeaseOption{client.WithSecret(req.secret), client.WithTTL(req.session.TTL),
		client.WithDescription(req.session.Name, req.session.Labels)}
	for _, o := range req.claim.options() {
		opts = append(opts, o)
	}
	if req.claim.unfair {
		opts = append(opts, client.WithUnfair())
	}
	l, err := c.Client.AcquireLease(ctx, req.claim.locks, opts...)
	if err != nil {
		return leased{}, err
	}
	return leased{lease: lease{l.ID(), req.secret}, token: l.Token(), session: l.Session(), ttl: l.TTL()}, nil
}

// Open opens a session.
func (c cluster) Open(ctx context.Context, opts client.SessionOptions) (session, error) {
	s, err := c.NewSession(ctx, opts)
	if err != nil {
		return nil, err
	}
	return opened{s}, nil
}

type opened struct{ *client.Session }

// Lock acquires all locks of a claim.
func (s opened) Lock(ctx context.Context, k claim) (hold, error) {
	h, err := s.acquire(ctx, k)
	if err != nil {
		return nil, err // not a typed nil
	}
	return h, nil
}

// Begin prepares a run of a job.
func (s opened) Begin(ctx context.Context, h hold, name string, keep time.Duration) (onceRun, error) {
	run, err := s.Once(name, keep.Truncate(time.Millisecond)).Begin(ctx, h.(*client.Hold))
	if run == nil {
		return nil, err // not a typed nil
	}
	return run, nil
}

func (s opened) acquire(ctx context.Context, k claim) (*client.Hold, error) {
	if k.unfair {
		opts := []client.LockOption{client.WithUnfair(), client.WithMaxHold(k.maxHold)}
		for _, o := range k.options() {
			opts = append(opts, o)
		}
		return s.Session.Lock(ctx, k.locks[0].Name, opts...)
	}
	opts := []client.LockAllOption{client.WithMaxHold(k.maxHold)}
	for _, o := range k.options() {
		opts = append(opts, o)
	}
	return s.LockAll(ctx, k.locks, opts...)
}

// withService runs a call that bounds its own duration.
func withService(c *cli.Context, dial dialer, call func(service) error) error {
	svc, err := dial(c)
	if err != nil {
		return err
	}
	defer svc.Close()
	return call(svc)
}

// ask runs one call against the cluster, bounded by the timeout.
func ask(c *cli.Context, dial dialer, standard time.Duration, call func(context.Context, service) error) error {
	return withService(c, dial, func(svc service) error {
		return within(c, svc, standard, func(ctx context.Context) error { return call(ctx, svc) })
	})
}

// within makes one call that standard bounds, or else --timeout.
func within(c *cli.Context, svc service, standard time.Duration, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(c.Context, timeout(c, standard))
	defer cancel()
	ctx, stop := watchEndpoints(ctx, c, svc)
	defer stop()
	return withEndpoints(c, call(ctx))
}

// withEndpoints adds what the check of the endpoints has found, or else the endpoints, to an error if there was
// no leader. It does not do so for an unknown outcome: then a leader had the request and the connection broke.
func withEndpoints(c *cli.Context, err error) error {
	if errors.Is(err, client.ErrUncertain) {
		return err
	}
	if wrong := (*misdialled)(nil); errors.As(err, &wrong) {
		return &failure{code: wrong.code(), cause: wrong}
	}
	if exitCode(err) == exitNoLeader {
		return fmt.Errorf("no serving leader at %s: %w", strings.Join(endpoints(c), ","), err)
	}
	return err
}
