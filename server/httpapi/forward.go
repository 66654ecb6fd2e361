package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// Headers between nodes. A request with headerFrom is not forwarded again.
const (
	// headerFrom names the node that forwarded a request.
	headerFrom = "Quorumlock-Forwarded-By"
	// headerFor is the caller's address as seen by the forwarding node.
	headerFor = "Quorumlock-Forwarded-For"
	// headerMoved marks the answer of a node that does not lead, or no longer leads. Its value says whether
	// that node may have changed something.
	headerMoved = "Quorumlock-Not-Leader"
	unchanged   = "unchanged"
	inDoubt     = "in-doubt"
)

// passage forwards requests to the leader: one hop, over persistent connections. It retries a request at the
// next leader if the previous one certainly did nothing, or if a second execution returns the outcome of the
// first.
type passage struct {
	server    *Server
	scheme    string
	transport *http.Transport
	proxy     *httputil.ReverseProxy
}

// once are the procedures whose second execution does not return the outcome of the first, because they have
// no sequence number.
var once = map[string]bool{
	wireconnect.SessionServiceCloseProcedure:              true,
	wireconnect.LeaseServiceReleaseProcedure:              true,
	wireconnect.OperatorServiceForceReleaseProcedure:      true,
	wireconnect.OperatorServiceRevokeProcedure:            true,
	wireconnect.OperatorServiceSkipDelayProcedure:         true,
	wireconnect.OperatorServiceResizeProcedure:            true,
	wireconnect.OperatorServiceRestoreProcedure:           true,
	wireconnect.ClusterServiceAddMemberProcedure:          true,
	wireconnect.ClusterServiceRemoveMemberProcedure:       true,
	wireconnect.ClusterServiceTransferLeadershipProcedure: true,
	wireconnect.ClusterServiceAcknowledgeAlarmsProcedure:  true,
}

// harmless are the read-only procedures, whose outcome is never uncertain.
var harmless = map[string]bool{
	wireconnect.SessionServiceHeartbeatProcedure:     true,
	wireconnect.SessionServiceListProcedure:          true,
	wireconnect.LockServiceGetProcedure:              true,
	wireconnect.LockServiceListProcedure:             true,
	wireconnect.LockServiceVerifyTokenProcedure:      true,
	wireconnect.LockServiceListDeadlocksProcedure:    true,
	wireconnect.OperatorServiceListAuditProcedure:    true,
	wireconnect.OperatorServiceSaveSnapshotProcedure: true,
	wireconnect.ClusterServiceStatusProcedure:        true,
}

var (
	errMoved     = errors.New("the node asked does not lead any more")
	errMidway    = errors.New("the node asked ceased to lead before it answered")
	errUnreached = errors.New("the leader cannot be reached")
)

const dialTimeout = 2 * time.Second

func newPassage(s *Server, secure *tls.Config) *passage {
	p := &passage{server: s, scheme: "http"}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(secure == nil)
	protocols.SetHTTP2(secure != nil)
	dial := func(ctx context.Context, _, addr string) (net.Conn, error) {
		ctx, stop := context.WithTimeout(ctx, dialTimeout)
		defer stop()
		conn, err := transport.Dial(ctx, s.cfg.Network, addr, secure)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errUnreached, err)
		}
		return conn, nil
	}
	p.transport = &http.Transport{
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
	if secure != nil {
		p.scheme = "https"
		p.transport.DialTLSContext = dial
	}
	p.proxy = &httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      p.transport,
		ModifyResponse: arrived,
		ErrorHandler:   failed,
		ErrorLog:       log.New(s.connections.warnings, "", 0),
	}
	return p
}

func (p *passage) close() { p.transport.CloseIdleConnections() }

// attempt is one request to one leader.
type attempt struct {
	host string
	err  error
}

type attemptKey struct{}

func (p *passage) rewrite(r *httputil.ProxyRequest) {
	a := r.In.Context().Value(attemptKey{}).(*attempt)
	r.SetURL(&url.URL{Scheme: p.scheme, Host: a.host})
	r.Out.Host = a.host
	// Hop-by-hop headers: the connection to the leader uses HTTP/2, which has no upgrades, and the body is
	// already here.
	for _, name := range []string{"Connection", "Upgrade", "Expect"} {
		r.Out.Header.Del(name)
	}
	r.Out.Header.Set(headerFrom, p.server.cfg.NodeID)
	r.Out.Header.Set(headerFor, r.In.RemoteAddr)
}

// arrived rejects the answer of a node that no longer leads.
func arrived(r *http.Response) error {
	switch r.Header.Get(headerMoved) {
	case "":
		return nil
	case unchanged:
		return errMoved
	}
	return errMidway
}

// failed records why there is no answer. Nothing was written yet.
func failed(_ http.ResponseWriter, r *http.Request, err error) {
	r.Context().Value(attemptKey{}).(*attempt).err = err
}

// carry gets the answer to a request that this node left to the leader. If this node has become the leader
// meanwhile, it answers the request itself.
func (p *passage) carry(a *answer, r *http.Request, body []byte, route route) {
	s := p.server
	if r.Header.Get(headerFrom) != "" {
		p.moved(a, r)
		return
	}
	deadline := time.Now().Add(s.cfg.Limits.LeaderWait)
	reason := "no leader is known"
	for {
		begun := time.Now()
		host, here := p.await(r.Context(), deadline)
		switch {
		case s.isClosing():
			p.giveUp(a, r, route, errStopping.Error())
			return
		case here:
			if p.serveHere(a, r, body, route); !a.call.elsewhere {
				return
			}
			reason = "leadership keeps moving"
		case host == "":
			p.giveUp(a, r, route, reason)
			return
		default:
			err := p.try(a, r, body, host)
			if err == nil {
				return
			}
			a.call.doubt = a.call.doubt || !(errors.Is(err, errMoved) || errors.Is(err, errUnreached))
			if !again(err, route) {
				p.giveUp(a, r, route, "the leader was lost on the way: "+err.Error())
				return
			}
			reason = err.Error()
		}
		if waited := time.Since(begun); waited > s.cfg.Limits.LeaderWait {
			// That leader had the request for long, perhaps queued: restart the search.
			deadline = time.Now().Add(s.cfg.Limits.LeaderWait)
		}
		pause(r.Context(), pollEvery)
	}
}

// await waits until a leader is known. It returns another node's address, or here if this node leads.
func (p *passage) await(ctx context.Context, deadline time.Time) (host string, here bool) {
	s := p.server
	ctx, stop := context.WithDeadline(ctx, deadline)
	defer stop()
	s.poll(ctx, func() bool {
		if here = s.replica.Serving(); here {
			return true
		}
		host = ""
		if id := s.replica.Leader().GetId(); id != "" && id != s.cfg.NodeID {
			host = s.replica.LeaderHTTP()
		}
		return host != ""
	})
	if ctx.Err() != nil {
		return "", false
	}
	return host, here
}

func (p *passage) serveHere(a *answer, r *http.Request, body []byte, route route) {
	clear(a.Header())
	a.call.elsewhere = false
	rewind(r, body)
	route.handler.ServeHTTP(a, r)
}

// try sends the request to host. A nil error means that an answer was written.
func (p *passage) try(a *answer, r *http.Request, body []byte, host string) error {
	clear(a.Header())
	a.call.elsewhere, a.call.outcome = false, ""
	this := &attempt{host: host}
	ctx, stop := context.WithCancelCause(context.WithValue(r.Context(), attemptKey{}, this))
	defer stop(nil)
	defer context.AfterFunc(p.server.life, func() { stop(errStopping) })()
	r = r.WithContext(ctx)
	rewind(r, body)
	p.proxy.ServeHTTP(a, r)
	if this.err != nil && errors.Is(context.Cause(ctx), errStopping) {
		this.err = errStopping
	}
	p.server.metrics.forwarded.WithLabelValues(resultOf(this.err)).Inc()
	return this.err
}

var errStopping = errors.New("this node is stopping")

func resultOf(err error) string {
	switch {
	case err == nil:
		return "answered"
	case errors.Is(err, errMoved), errors.Is(err, errMidway):
		return "moved"
	case errors.Is(err, errUnreached):
		return "unreached"
	}
	return "lost"
}

// again reports whether a failed request may be sent once more.
func again(err error, route route) bool {
	switch {
	case errors.Is(err, errStopping), errors.Is(err, context.Canceled):
		return false
	case errors.Is(err, errMoved), errors.Is(err, errUnreached):
		return true
	}
	return !once[route.name]
}

// moved answers the node that forwarded a request, which then tries the next leader.
func (p *passage) moved(a *answer, r *http.Request) {
	status, value := wire.Status_NOT_LEADER, unchanged
	if a.call.doubt {
		status, value = wire.Status_UNCERTAIN, inDoubt
	}
	clear(a.Header())
	a.call.elsewhere, a.call.outcome = false, status.String()
	a.Header().Set(headerMoved, value)
	_ = p.server.errors.Write(a, r, failure(status, ""))
}

// giveUp answers without a leader. If something may have been done, the status is UNCERTAIN.
func (p *passage) giveUp(a *answer, r *http.Request, route route, reason string) {
	status, message := wire.Status_UNAVAILABLE, "nothing was done: "+reason+"; send the request again"
	switch {
	case !a.call.doubt || harmless[route.name]:
	case once[route.name]:
		status, message = wire.Status_UNCERTAIN, reason+"; it is not known whether this was done"
	default:
		status, message = wire.Status_UNCERTAIN, reason+"; send the same request again, to any node"
	}
	clear(a.Header())
	a.call.elsewhere = false
	a.call.outcome = status.String()
	_ = p.server.errors.Write(a, r, failure(status, message))
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
