package attacker

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// flood keeps connections open that send one kind of request as fast as the pace allows, each with its own
// session.
func (a *attack) flood(ctx context.Context, next func(f *rpcConn, session uint64) func() []byte) {
	a.each(ctx, a.plan.Connections, func(ctx context.Context, _ int) error {
		return a.withSession(ctx, func(s *sessions, id uint64) error {
			a.ready.Store(true)
			return s.f.stream(ctx, s.mixed(next(s.f, id)))
		})
	})
}

// same sends the same request repeatedly.
func same(make func() *wire.Request) func(*rpcConn, uint64) func() []byte {
	return func(f *rpcConn, _ uint64) func() []byte {
		return func() []byte { return f.frame(make()) }
	}
}

// floodTry repeatedly tries to acquire one lock. Its holder releases it only with its session, so nearly
// every try fails.
func (a *attack) floodTry(ctx context.Context) error {
	a.flood(ctx, func(f *rpcConn, id uint64) func() []byte {
		seq := uint64(0)
		return func() []byte {
			seq++
			req := acquire(id, seq, seq, false, &wire.LockRequest{Name: "attack/try"})
			req.AckedBelow = acknowledged(seq)
			return f.frame(req)
		}
	})
	return nil
}

// pageSize is the maximum page size.
const pageSize = 1_000

func listLocks() *wire.Request {
	return &wire.Request{Body: &wire.Request_ListLocks{ListLocks: &wire.ListLocksRequest{PageSize: pageSize}}}
}

// floodList continuously reads pages of the maximum size, on the client and the HTTP port.
func (a *attack) floodList(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { a.floodHTTP(ctx, "LockService/List", []byte(`{"pageSize":1000}`)) })
	a.flood(ctx, same(listLocks))
	all.Wait()
	return nil
}

// floodStatus continuously requests the cluster's status, for which the leader asks all nodes each time.
func (a *attack) floodStatus(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { a.floodHTTP(ctx, "ClusterService/Status", []byte(`{}`)) })
	a.flood(ctx, same(func() *wire.Request {
		return &wire.Request{Body: &wire.Request_Status{Status: &wire.StatusRequest{}}}
	}))
	all.Wait()
	return nil
}

// floodDeadlocks continuously requests the list of deadlocks.
func (a *attack) floodDeadlocks(ctx context.Context) error {
	a.flood(ctx, same(func() *wire.Request {
		return &wire.Request{Body: &wire.Request_ListDeadlocks{ListDeadlocks: &wire.ListDeadlocksRequest{}}}
	}))
	return nil
}

// longest is the length of a bad name, in bytes.
const longest = 60_000

// badNames tries to acquire locks with invalid names: one that is far too long, and one that is not UTF-8, on
// the client and the HTTP port.
func (a *attack) badNames(ctx context.Context) error {
	long := string(bytes.Repeat([]byte{'x'}, longest))
	var all sync.WaitGroup
	all.Go(func() {
		a.floodHTTP(ctx, "LockService/Acquire", []byte(`{"session":{"sessionId":"1","secret":"AAAAAAAAAAAAAAAAAAAAAA=="},"seq":1,"name":"`+long+`"}`))
	})
	a.flood(ctx, func(f *rpcConn, id uint64) func() []byte {
		seq := uint64(0)
		return func() []byte {
			seq++
			if seq%2 == 0 {
				return f.frame(acquire(id, seq, seq, false, &wire.LockRequest{Name: long}))
			}
			return f.crooked(id, seq)
		}
	})
	all.Wait()
	return nil
}

// crooked encodes an acquire of a name that is not UTF-8, which the encoder would refuse.
func (f *rpcConn) crooked(session, seq uint64) []byte {
	const lockName, locks, acquireBody, requestBody = 1, 1, 32, 2
	field := func(to []byte, number protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), value)
	}
	f.last++
	head, err := proto.Marshal(&wire.Request{Id: f.last, SessionId: session, Seq: seq})
	if err != nil {
		f.a.failed(err)
	}
	lock := field(nil, lockName, []byte("attack/\xff\xfe/bad"))
	return field(nil, requestBody, field(head, acquireBody, field(nil, locks, lock)))
}

// httpCallers is the number of connections of a flood to the HTTP port, in addition to those to the client
// port.
const httpCallers = 4

// httpClient keeps so many connections to the leader's HTTP port.
func (a *attack) httpClient(connections int) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			conn, err := a.dial(ctx, "http", addr, 0)
			if err != nil {
				return nil, err
			}
			return &tracked{TCPConn: conn, a: a}, nil
		},
		TLSClientConfig:     a.tls,
		MaxIdleConnsPerHost: connections,
	}
}

// post sends one request to the leader's HTTP port.
func (a *attack) post(ctx context.Context, over *http.Transport, procedure string, body []byte) (*http.Response, error) {
	url := "http://" + a.leader().HTTP + "/quorumlock.v1." + procedure
	if a.tls != nil {
		url = "https" + url[len("http"):]
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	a.sent.Add(1)
	a.bytesSent.Add(int64(len(body)))
	return over.RoundTrip(req)
}

// floodHTTP posts the same body repeatedly.
func (a *attack) floodHTTP(ctx context.Context, procedure string, body []byte) {
	over := a.httpClient(httpCallers)
	defer over.CloseIdleConnections()
	a.each(ctx, httpCallers, func(ctx context.Context, _ int) error {
		for ctx.Err() == nil {
			a.pace.wait(ctx)
			resp, err := a.post(ctx, over, procedure, body)
			if err != nil {
				return err
			}
			n, err := io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			a.bytesRead.Add(n)
			if err != nil {
				return err
			}
			a.countHTTP(resp.StatusCode)
		}
		return nil
	})
}

func (a *attack) countHTTP(status int) {
	a.answered.Add(1)
	if status == http.StatusOK {
		a.granted.Add(1)
	} else {
		a.refused.Add(1)
	}
}

// tracked is counted as open until it is closed.
type tracked struct {
	*net.TCPConn
	a *attack
}

// Close closes the connection and stops counting it.
func (t *tracked) Close() error {
	t.a.drop(t.TCPConn)
	return nil
}
