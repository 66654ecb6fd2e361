package forward

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/server/httpapi/response"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// Headers between nodes, which count only on connections from nodes. A request with HeaderFrom is not forwarded again.
const (
	// HeaderFrom names the node that forwarded a request.
	HeaderFrom = "Quorumlock-Forwarded-By"
	// HeaderCaller is the caller as the forwarding node has verified it: a wire.Caller in base64. Without it, the
	// request is the node's own.
	HeaderCaller = "Quorumlock-Forwarded-Caller"
	// HeaderMoved marks the answer of a node that does not lead, or no longer leads. Its value says whether
	// that node may have changed something.
	HeaderMoved = "Quorumlock-Not-Leader"
	Unchanged   = "unchanged"
	InDoubt     = "in-doubt"
)

// Replica is the part of the node that knows the leader.
type Replica interface {
	// Leader returns the leader known to the node, empty if none.
	Leader() *wire.LeaderHint
	// OpenForward opens a connection to the leader's HTTP port that is known to be a node's.
	OpenForward(ctx context.Context, leader *wire.LeaderHint) (net.Conn, error)
	// Serving reports whether this node leads and may answer.
	Serving() bool
}

// Config configures a Forwarder.
type Config struct {
	// NodeID is the node's --id.
	NodeID  string
	Replica Replica
	// Wait bounds the time a request waits for a leader.
	Wait time.Duration
	// Registry receives the metrics.
	Registry *prometheus.Registry
	// Warnings receives the log messages about connections to the leader.
	Warnings *ratelog.Logger
	// Errors writes error responses.
	Errors *connect.ErrorWriter
	// Dismissal returns the error for a request that was ended because its caller has to go, or nil.
	Dismissal func(ctx context.Context) error
	// Life ends when the node stops.
	Life context.Context
}

// Forwarder forwards requests to the leader. It is safe for concurrent use.
type Forwarder struct {
	cfg       Config
	transport *http.Transport
	proxy     *httputil.ReverseProxy
	forwarded *prometheus.CounterVec
}

// Request is a request that the leader has to answer.
type Request struct {
	*http.Request
	// Body is the complete body.
	Body []byte
	// Procedure is the path of the procedure.
	Procedure string
	// Handler answers the request on this node.
	Handler http.Handler
}

// ErrUnreached is the error of a connection to the leader that cannot be established.
var ErrUnreached = errors.New("the leader cannot be reached")

var (
	errMoved    = errors.New("the node asked no longer leads")
	errMidway   = errors.New("the node asked lost leadership before it answered")
	errStopping = errors.New("this node is stopping")
)

const (
	dialTimeout = 2 * time.Second
	// pollEvery is the interval at which the leader is looked up: there is no notification of it.
	pollEvery = 20 * time.Millisecond
)

// New returns a Forwarder. The caller must call Close.
func New(cfg Config) *Forwarder {
	f := &Forwarder{cfg: cfg, forwarded: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quorumlock_http_forwarded_total",
		Help: "Requests sent on to the leader, by what came of it: answered, moved (it no longer led), unreached, lost.",
	}, []string{"result"})}
	for _, result := range []string{"answered", "moved", "unreached", "lost"} {
		f.forwarded.WithLabelValues(result) // so that the first one is seen as an increase
	}
	cfg.Registry.MustRegister(f.forwarded)
	f.transport = newTransport(cfg)
	f.proxy = &httputil.ReverseProxy{
		Rewrite:        f.rewrite,
		Transport:      f.transport,
		ModifyResponse: arrived,
		ErrorHandler:   failed,
		ErrorLog:       log.New(cfg.Warnings, "", 0),
	}
	return f
}

func newTransport(cfg Config) *http.Transport {
	dial := func(ctx context.Context, _, addr string) (net.Conn, error) {
		ctx, stop := context.WithTimeout(ctx, dialTimeout)
		defer stop()
		leader, _, _ := net.SplitHostPort(addr)
		conn, err := cfg.Replica.OpenForward(ctx, &wire.LeaderHint{Id: leader})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnreached, err)
		}
		return conn, nil
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{
		Protocols:       &protocols,
		DialContext:     dial,
		IdleConnTimeout: time.Minute,
		HTTP2: &http.HTTP2Config{
			// A silent leader must not block requests that another node could answer.
			SendPingTimeout: time.Second,
			PingTimeout:     2 * time.Second,
		},
		DisableCompression: true,
	}
}

// RegisterProtocol makes rt send the requests of a URL scheme, as the method of http.Transport does.
func (f *Forwarder) RegisterProtocol(scheme string, rt http.RoundTripper) {
	f.transport.RegisterProtocol(scheme, rt)
}

// Close closes the idle connections to the leader.
func (f *Forwarder) Close() { f.transport.CloseIdleConnections() }

// scheme is that of the requests to the leader: the connection between the nodes is secure by itself.
const scheme = "http"

// EncodeCaller returns the value of HeaderCaller.
func EncodeCaller(caller *wire.Caller) string {
	data, err := proto.Marshal(caller)
	if err != nil {
		panic(err) // its texts are valid: they were verified
	}
	return base64.StdEncoding.EncodeToString(data)
}

// DecodeCaller returns the caller in the value of HeaderCaller.
func DecodeCaller(value string) (*wire.Caller, error) {
	data, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return nil, err
	}
	caller := &wire.Caller{}
	return caller, proto.Unmarshal(data, caller)
}

// attempt is one request to one leader.
type attempt struct {
	leader string // its id
	err    error

	mu       sync.Mutex
	answered bool // the answer has begun; guarded by mu
}

// begin returns an error if the attempt has ended before its answer began.
func (a *attempt) begin(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answered = true
	return context.Cause(ctx)
}

// end ends the attempt. An answer that has begun is still sent to a caller that was dismissed, for the reason in it.
func (a *attempt) end(stop context.CancelCauseFunc, cause error, dismissed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.answered || !dismissed {
		stop(cause)
	}
}

type attemptKey struct{}

func (f *Forwarder) rewrite(r *httputil.ProxyRequest) {
	a := r.In.Context().Value(attemptKey{}).(*attempt)
	r.SetURL(&url.URL{Scheme: scheme, Host: a.leader})
	r.Out.Host = a.leader
	// Hop-by-hop headers: the connection to the leader uses HTTP/2, which has no upgrades, and the body is
	// already here.
	for _, name := range []string{"Connection", "Upgrade", "Expect"} {
		r.Out.Header.Del(name)
	}
	r.Out.Header.Set(HeaderFrom, f.cfg.NodeID)
	r.Out.Header.Set(HeaderCaller, EncodeCaller(identity.FromContext(r.In.Context())))
	r.Out.Header.Del("Authorization")
}

// arrived rejects the answer of a node that no longer leads, and one that comes too late.
func arrived(r *http.Response) error {
	switch r.Header.Get(HeaderMoved) {
	case "":
		ctx := r.Request.Context()
		return ctx.Value(attemptKey{}).(*attempt).begin(ctx)
	case Unchanged:
		return errMoved
	}
	return errMidway
}

// failed records why there is no answer. Nothing was written yet.
func failed(_ http.ResponseWriter, r *http.Request, err error) {
	r.Context().Value(attemptKey{}).(*attempt).err = err
}

// try sends the request to the leader. A nil error means that an answer was written.
func (f *Forwarder) try(w *response.Writer, r Request, leader string) error {
	w.Reset()
	this := &attempt{leader: leader}
	ctx, stop := context.WithCancelCause(context.WithValue(context.WithoutCancel(r.Context()), attemptKey{}, this))
	defer stop(nil)
	defer context.AfterFunc(r.Context(), func() {
		this.end(stop, context.Cause(r.Context()), f.cfg.Dismissal(r.Context()) != nil)
	})()
	defer context.AfterFunc(f.cfg.Life, func() { stop(errStopping) })()
	out := r.WithContext(ctx)
	Rewind(out, r.Body)
	f.proxy.ServeHTTP(w, out)
	if this.err != nil && errors.Is(context.Cause(ctx), errStopping) {
		this.err = errStopping
	}
	f.forwarded.WithLabelValues(resultOf(this.err)).Inc()
	return this.err
}

func resultOf(err error) string {
	switch {
	case err == nil:
		return "answered"
	case errors.Is(err, errMoved), errors.Is(err, errMidway):
		return "moved"
	case errors.Is(err, ErrUnreached):
		return "unreached"
	}
	return "lost"
}

// again reports whether a failed request may be sent once more.
func again(err error, procedure string) bool {
	switch {
	case errors.Is(err, errStopping), errors.Is(err, context.Canceled):
		return false
	case errors.Is(err, errMoved), errors.Is(err, ErrUnreached):
		return true
	}
	return !once[procedure]
}

// Revision reads the revision from the leader with that id. Any linearizable answer carries it.
func (f *Forwarder) Revision(ctx context.Context, leaderID string) (uint64, error) {
	ctx, stop := context.WithTimeout(ctx, f.cfg.Wait)
	defer stop()
	leader := wireconnect.NewLockServiceClient(&http.Client{Transport: f.transport}, scheme+"://"+leaderID)
	req := connect.NewRequest(&wire.VerifyTokenRequest{Name: "-"})
	req.Header().Set(HeaderFrom, f.cfg.NodeID)
	answer, err := leader.VerifyToken(ctx, req)
	if err != nil {
		return 0, err
	}
	return answer.Msg.GetRevision(), nil
}
