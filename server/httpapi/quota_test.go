package httpapi

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/quorumlock/quorumlock/server/httpapi/forward"
	"github.com/quorumlock/quorumlock/server/httpapi/listener"
	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// playBounded runs a scene in which every identity has this quota. The callers are anonymous.
func playBounded(t *testing.T, q *wire.Quota, scene func(*stage), options ...func(*Config)) {
	play(t, func(st *stage) {
		q.Identity = "*"
		st.c.must(&wire.Command{Caller: &wire.Caller{Identity: "root"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Reason: "r", Policy: &wire.Policy{
			Bindings: []*wire.Binding{{Identity: "root", Roles: []string{"admin"}}, {Identity: "*", Roles: []string{"user"}}}, Quotas: []*wire.Quota{q},
		}}}})
		scene(st)
	}, append(options, func(c *Config) { c.Quotas = quota.New(c.Replica, 10) })...)
}

const stale = `{"stale":true}`

// TestQuotaOfRequests verifies that requests over the rate are refused, whatever their connection, and not those that
// another node has counted or that give something up.
func TestQuotaOfRequests(t *testing.T) {
	playBounded(t, &wire.Quota{RequestsPerSecond: 2}, func(st *stage) {
		other := st.connect()
		defer other.Close()
		elsewhere := func(r *http.Request) { *r = *r.WithContext(listener.Context(r.Context(), other)) }
		st.ask("AccessService/WhoAmI", stale).reply().ok()
		st.ask("AccessService/WhoAmI", stale, elsewhere).reply().ok()
		for _, change := range []func(*http.Request){func(*http.Request) {}, elsewhere} {
			got := st.ask("AccessService/WhoAmI", stale, change).reply().refused(http.StatusTooManyRequests, wire.Status_RESOURCE_EXHAUSTED)
			if got != `quota requests_per_second of "anonymous": at most 2 per second` {
				t.Errorf("says %q", got)
			}
		}
		st.ask("AccessService/WhoAmI", stale, st.from("n2")).reply().ok()
		v := st.open("ann")
		closing := st.ask("SessionService/Close", "{"+v.creds+"}")
		st.expect("CloseSession").apply().answer()
		closing.reply().ok()
	})
}

// TestDeniedRequestsCount verifies that requests that the policy denies count too, and are refused for their rate first.
func TestDeniedRequestsCount(t *testing.T) {
	playBounded(t, &wire.Quota{RequestsPerSecond: 2}, func(st *stage) {
		for range 2 {
			st.ask("OperatorService/ListAudit", stale).reply().refused(http.StatusForbidden, wire.Status_PERMISSION_DENIED)
		}
		for _, procedure := range []string{"OperatorService/ListAudit", "AccessService/WhoAmI"} {
			st.ask(procedure, stale).reply().refused(http.StatusTooManyRequests, wire.Status_RESOURCE_EXHAUSTED)
		}
	})
}

// TestQuotaOfConnections verifies that a second connection is refused while the first one is open, and closed.
func TestQuotaOfConnections(t *testing.T) {
	playBounded(t, &wire.Quota{Connections: 1}, func(st *stage) {
		other := st.connect()
		defer other.Close()
		elsewhere := func(r *http.Request) { *r = *r.WithContext(listener.Context(r.Context(), other)) }
		st.ask("AccessService/WhoAmI", stale).reply().ok()
		for range 2 {
			got := st.ask("AccessService/WhoAmI", stale, elsewhere).reply()
			if got.status != http.StatusTooManyRequests || got.header.Get("Connection") != "close" {
				t.Errorf("the second connection: %d %v %s", got.status, got.header, got.body)
			}
		}
		st.ask("AccessService/WhoAmI", stale).reply().ok()
		_ = st.conn.Close()
		st.ask("AccessService/WhoAmI", stale, elsewhere).reply().ok()
	})
}

// TestPlacesOfOperators verifies that only callers with a right of operators get the places reserved for them, and only
// for requests of operators.
func TestPlacesOfOperators(t *testing.T) {
	const most = operatorsShare * 4
	playBounded(t, &wire.Quota{Sessions: 9}, func(st *stage) {
		const taken = most - most/operatorsShare
		st.s.metrics.InFlight.Add(taken)
		defer st.s.metrics.InFlight.Add(-taken)
		root := st.from("n2")
		asRoot := func(r *http.Request) {
			root(r)
			r.Header.Set(forward.HeaderCaller, forward.EncodeCaller(&wire.Caller{Identity: "root"}))
		}
		st.ask("AccessService/WhoAmI", stale, asRoot).reply().ok()
		for name, got := range map[string]reply{
			"without a right of operators":            st.ask("AccessService/WhoAmI", stale).reply(),
			"with one, for a request that needs none": st.ask("LockService/List", stale, asRoot).reply(),
		} {
			if got.status != http.StatusTooManyRequests || !strings.Contains(got.body, "max_requests") {
				t.Errorf("%s: %d %s", name, got.status, got.body)
			}
		}
	}, limits(func(l *Limits) { l.MaxRequests = most }))
}

// TestShareOfUnfinishedBodies verifies that requests whose body has not arrived count towards the share of their identity.
func TestShareOfUnfinishedBodies(t *testing.T) {
	playBounded(t, &wire.Quota{Sessions: 9}, func(st *stage) {
		unfinished, finish := io.Pipe()
		withheld := func(r *http.Request) { r.Body, r.ContentLength = unfinished, -1 }
		var waiting []*asked
		for range 2 {
			waiting = append(waiting, st.ask("AccessService/WhoAmI", stale, withheld))
		}
		synctest.Wait()
		if got := st.ask("AccessService/WhoAmI", stale).reply(); got.status != http.StatusTooManyRequests || !strings.Contains(got.body, "max_requests") {
			t.Errorf("beside two unfinished bodies: %d %s", got.status, got.body)
		}
		_ = finish.CloseWithError(io.ErrUnexpectedEOF)
		for _, a := range waiting {
			a.reply()
		}
		st.ask("AccessService/WhoAmI", stale).reply().ok()
	}, limits(func(l *Limits) { l.MaxRequests = 4 }))
}

// TestForwardedRequestsThatHoldMostAreEnded verifies that the requests of one identity end when they hold most of the
// node's buffers, and not the connection of the node that has forwarded them.
func TestForwardedRequestsThatHoldMostAreEnded(t *testing.T) {
	playBounded(t, &wire.Quota{Sessions: 9}, func(st *stage) {
		node := st.from("n2")
		as := func(identity string) func(*http.Request) {
			return func(r *http.Request) {
				node(r)
				r.Header.Set(forward.HeaderCaller, forward.EncodeCaller(&wire.Caller{Identity: identity}))
			}
		}
		waiting := []*asked{st.ask("AccessService/WhoAmI", "{}", as("ann"))}
		proofs := []*step{st.expect("Prove")}
		for range 4 {
			waiting = append(waiting, st.ask("AccessService/WhoAmI", "{}", as("root")))
			proofs = append(proofs, st.expect("Prove"))
		}
		other := st.connect()
		defer other.Close()
		elsewhere := func(r *http.Request) { *r = *r.WithContext(listener.Context(r.Context(), other)) }
		st.ask("AccessService/WhoAmI", stale, elsewhere).reply().ok()
		for i, a := range waiting {
			if i == 0 {
				proofs[i].apply().answer()
				a.reply().ok()
				continue
			}
			if got := a.reply().refused(http.StatusGatewayTimeout, wire.Status_UNCERTAIN); !strings.Contains(got, "max_buffer_bytes") {
				t.Errorf("request %d: %q", i, got)
			}
		}
		st.ask("AccessService/WhoAmI", stale, as("root")).reply().ok()
	}, func(c *Config) { c.Buffers = budget.New(5*(requestBytes+64) + listener.ConnBytes/2) })
}

// TestShareOfConnections verifies that an identity without a quota of connections leaves some to others, and that
// health needs none.
func TestShareOfConnections(t *testing.T) {
	playBounded(t, &wire.Quota{Sessions: 9}, func(st *stage) {
		for i := range 4 {
			conn := st.connect()
			defer conn.Close()
			on := func(r *http.Request) { *r = *r.WithContext(listener.Context(r.Context(), conn)) }
			if got := st.ask("AccessService/WhoAmI", stale, on).reply(); (got.status == http.StatusOK) != (i < 2) {
				t.Errorf("connection %d of 4: %d %s", i, got.status, got.body)
			}
			if _, established := st.s.connections.Len(); established != min(i+1, 2) {
				t.Errorf("with connection %d, %d are established", i, established)
			}
		}
	}, limits(func(l *Limits) { l.MaxConnections = 4 }))
}

// TestShareOfRequests verifies that the requests of an identity in flight leave places to others, also those that
// another node forwards.
func TestShareOfRequests(t *testing.T) {
	playBounded(t, &wire.Quota{Sessions: 9}, func(st *stage) {
		var proofs []*step
		var waiting []*asked
		for _, via := range []func(*http.Request){func(*http.Request) {}, st.from("n2")} {
			waiting = append(waiting, st.ask("AccessService/WhoAmI", "{}", via))
			proofs = append(proofs, st.expect("Prove"))
		}
		got := st.ask("AccessService/WhoAmI", "{}", st.from("n3")).reply()
		const want = `max_requests: 2 of 4 are taken, and 2 of them by \"anonymous\": while a policy is in force`
		if got.status != http.StatusTooManyRequests || !strings.Contains(got.body, want) {
			t.Errorf("the third: %d %s", got.status, got.body)
		}
		if again := st.ask("AccessService/WhoAmI", "{}").reply(); again.status != http.StatusTooManyRequests || got.header.Get("Connection")+again.header.Get("Connection") != "" {
			t.Errorf("the refusals end the connections: %d %v %v", again.status, got.header, again.header)
		}
		for i := range proofs {
			proofs[i].apply().answer()
			waiting[i].reply().ok()
		}
	}, limits(func(l *Limits) { l.MaxRequests = 4 }))
}
