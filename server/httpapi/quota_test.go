package httpapi

import (
	"net/http"
	"testing"

	"github.com/quorumlock/quorumlock/server/httpapi/listener"
	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// playBounded runs a scene in which every identity has this quota. The callers are anonymous.
func playBounded(t *testing.T, q *wire.Quota, scene func(*stage)) {
	play(t, func(st *stage) {
		q.Identity = "*"
		st.c.must(&wire.Command{Caller: &wire.Caller{Identity: "root"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Reason: "r", Policy: &wire.Policy{
			Bindings: []*wire.Binding{{Identity: "root", Roles: []string{"admin"}}, {Identity: "*", Roles: []string{"user"}}}, Quotas: []*wire.Quota{q},
		}}}})
		scene(st)
	}, func(c *Config) { c.Quotas = quota.New(c.Replica) })
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
			if got != `quota requests_per_second of "anonymous": 2 of 2 used, this would take 1 more` {
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

// TestQuotaOfConnections verifies that a second connection is refused while the first one has a request.
func TestQuotaOfConnections(t *testing.T) {
	playBounded(t, &wire.Quota{Connections: 1}, func(st *stage) {
		other := st.connect()
		defer other.Close()
		elsewhere := func(r *http.Request) { *r = *r.WithContext(listener.Context(r.Context(), other)) }
		waiting := st.ask("AccessService/WhoAmI", "{}")
		proof := st.expect("Prove")
		got := st.ask("AccessService/WhoAmI", stale, elsewhere).reply()
		if got.status != http.StatusTooManyRequests {
			t.Errorf("the second connection: %d %s", got.status, got.body)
		}
		st.ask("AccessService/WhoAmI", stale).reply().ok()
		proof.apply().answer()
		waiting.reply().ok()
		st.ask("AccessService/WhoAmI", stale, elsewhere).reply().ok()
	})
}
