package rpc

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/test/scrape"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestRequestsAreTimed verifies that each request is observed once, under the name that counts it, from its arrival to
// its answer: those of sessions, reads, operators' requests and watches.
func TestRequestsAreTimed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		p := serveInMemory(t, func(c *Config) { c.Registry = registry })
		c := connect(t, p)
		session := c.open(secret)
		p.replica.hold()
		first := c.send(acquire(session, 1, "a", true))
		time.Sleep(time.Second)
		second := c.send(acquire(session, 2, "b", true))
		closing := c.send(&wire.Request{SessionId: session, Body: &wire.Request_CloseSession{CloseSession: &wire.CloseSession{}}})
		synctest.Wait()
		time.Sleep(2 * time.Second)
		p.replica.release()
		for _, id := range []uint64{first, second, closing} {
			c.await(id)
		}
		c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_ListLocks{ListLocks: &wire.ListLocksRequest{}}})
		p.replica.administerWith(func(context.Context) error {
			time.Sleep(time.Second)
			return nil
		})
		c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_AddMember{AddMember: &wire.AddMemberRequest{Reason: "test"}}})
		c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_Watch{Watch: &wire.WatchRequest{}}})
		c.expect(wire.Status_UNSUPPORTED, &wire.Request{})
		synctest.Wait()

		got, counted := scrape.Histograms(t, registry), scrape.Values(t, registry)
		for op, want := range map[string]struct {
			count uint64
			sum   float64
		}{
			"open_session": {1, 0}, "acquire": {2, 5}, "close_session": {1, 2}, "list_locks": {1, 0}, "add_member": {1, 1}, "watch": {1, 0}, "unknown": {1, 0},
		} {
			h := got["client_request_seconds "+op]
			if h.GetSampleCount() != want.count || h.GetSampleSum() != want.sum || counted["client_requests_total "+op] != float64(want.count) {
				t.Errorf("%s: %v were counted, %d observed with %v s, want %v", op, counted["client_requests_total "+op], h.GetSampleCount(), h.GetSampleSum(), want)
			}
			if h.GetSchema() == 0 {
				t.Errorf("%s: the histogram is not native", op)
			}
		}
	})
}

// TestOneRequestOfEachReadIsTimed verifies that of the frequent requests that come together all are counted, and one is
// timed.
func TestOneRequestOfEachReadIsTimed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		p := serveInMemory(t, func(c *Config) { c.Registry = registry })
		c := connect(t, p)
		session := c.open(secret)
		for read := range uint64(2) {
			first := c.together("", acquire(session, 3*read+1, "a", true), acquire(session, 3*read+2, "b", true), heartbeat(session))
			for i := range uint64(3) {
				c.await(first + i)
			}
		}
		synctest.Wait()
		timed, counted := scrape.Histograms(t, registry), scrape.Values(t, registry)
		acquires, heartbeats := timed["client_request_seconds acquire"].GetSampleCount(), timed["client_request_seconds heartbeat"].GetSampleCount()
		if acquires != 2 || heartbeats != 0 || counted["client_requests_total acquire"] != 4 || counted["client_requests_total heartbeat"] != 2 {
			t.Errorf("%d acquires and %d heartbeats are timed, %v counted", acquires, heartbeats, counted)
		}
	})
}

// TestAnswersOfOneIDAreTimedOnce verifies that requests that share an id leave nothing behind.
func TestAnswersOfOneIDAreTimedOnce(t *testing.T) {
	var a arrivals
	observed := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "a", Buckets: []float64{1}})
	for range 2 {
		a.add(7, arrival{&kind{seconds: observed}, time.Now()})
	}
	a.answered(7)
	a.answered(7)
	a.answered(8)
	a.add(9, arrival{}) // nobody can read the metrics
	registry := prometheus.NewRegistry()
	registry.MustRegister(observed)
	if n := scrape.Histograms(t, registry)["a"].GetSampleCount(); n != 1 || len(a.byID) != 0 {
		t.Errorf("%d were observed, %d are left", n, len(a.byID))
	}
}
