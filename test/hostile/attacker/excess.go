package attacker

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"sync"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// openSessions opens sessions continuously, and lets them expire.
func (a *attack) openSessions(ctx context.Context) error {
	a.each(ctx, a.plan.Connections, func(ctx context.Context, _ int) error {
		return a.withSession(ctx, func(s *sessions, _ uint64) error {
			a.ready.Store(true)
			return s.f.stream(ctx, func() []byte {
				secret := make([]byte, 32)
				_, _ = rand.Read(secret)
				return s.f.frame(&wire.Request{Body: &wire.Request_OpenSession{OpenSession: &wire.OpenRequest{Secret: secret, TtlMs: sessionTTLMs}}})
			})
		})
	})
	return nil
}

// openWatches opens as many watches as a connection may have, on each connection, and reads their events. One more
// connection causes events with large values.
func (a *attack) openWatches(ctx context.Context) error {
	return a.beside(ctx, a.events, func(ctx context.Context) error {
		f, err := a.caller(ctx, window)
		if err != nil {
			return err
		}
		defer f.close()
		for range watchesPerConn {
			if err := f.send(&wire.Request{Body: &wire.Request_Watch{Watch: &wire.WatchRequest{Prefix: "attack/"}}}); err != nil {
				return err
			}
		}
		if err := f.w.Flush(); err != nil {
			return err
		}
		return f.stay(ctx)
	})
}

// stay returns when ctx or the connection ends.
func (f *rpcConn) stay(ctx context.Context) error {
	select {
	case <-f.ended:
		return f.err
	case <-ctx.Done():
		return nil
	}
}

// openConnections keeps connections open, two thirds to the client port and one third to the HTTP port, each of which
// has identified itself. A connection that is refused or closed is replaced.
func (a *attack) openConnections(ctx context.Context) error {
	a.ready.Store(true)
	a.each(ctx, a.plan.Connections, func(ctx context.Context, i int) error {
		a.pace.wait(ctx)
		if i%3 == 0 {
			return a.idleHTTP(ctx)
		}
		f, err := a.caller(ctx, window)
		if err != nil {
			a.refused.Add(1)
			return err
		}
		defer f.close()
		a.granted.Add(1)
		return f.stay(ctx)
	})
	return nil
}

// idleHTTP sends one request and keeps its connection open.
func (a *attack) idleHTTP(ctx context.Context) error {
	c := a.httpClient(1)
	defer c.CloseIdleConnections()
	resp, err := a.post(ctx, c, "AccessService/WhoAmI", []byte(`{"stale":true}`))
	if err != nil {
		a.refused.Add(1)
		return err
	}
	a.countHTTP(resp.StatusCode)
	n, err := io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	a.bytesRead.Add(n)
	if resp.StatusCode == http.StatusOK {
		<-ctx.Done()
	}
	return err
}

// largeValues sets large values of holds continuously, on all connections.
func (a *attack) largeValues(ctx context.Context) error {
	a.ready.Store(true)
	a.each(ctx, a.plan.Connections, func(ctx context.Context, i int) error { return a.setValues(ctx, longName("attack/value/%d", i)) })
	return nil
}

// everything runs one attack of each kind at once: on sessions, waits, bytes, watches, connections and requests.
func (a *attack) everything(ctx context.Context) error {
	a.ready.Store(true)
	var all sync.WaitGroup
	for _, one := range []func(*attack, context.Context) error{
		(*attack).openSessions, (*attack).names, (*attack).largeValues, (*attack).openWatches, (*attack).openConnections, (*attack).floodTry, (*attack).floodList,
	} {
		all.Go(func() {
			if err := one(a, ctx); err != nil {
				a.failed(err)
			}
		})
	}
	all.Wait()
	return nil
}
