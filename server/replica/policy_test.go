package replica_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/test/scrape"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) contains(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(b.text.String(), text)
}

// TestMissingPolicyShows verifies that the log of a leader and the metrics of every node say whether there is a policy.
func TestMissingPolicyShows(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 1)
		registry, log := prometheus.NewRegistry(), &lockedBuffer{}
		c.nodes["n1"].cfg.Registry = registry
		c.nodes["n1"].cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: log})
		c.startAll()
		n := c.waitForReports()
		inForce := func() float64 {
			t.Helper()
			value, ok := scrape.Values(t, registry)["policy_in_force"]
			if !ok {
				t.Fatal("no metric")
			}
			return value
		}
		const warning = "the cluster has no policy: every client may do everything"
		if inForce() != 0 || !log.contains(warning) {
			t.Errorf("without a policy: %v, warned: %v", inForce(), log.contains(warning))
		}
		c.expect(n.do(&wire.Command{Caller: &wire.Caller{Identity: "root"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{
			Reason: "r", Policy: &wire.Policy{Bindings: []*wire.Binding{{Identity: "root", Roles: []string{"admin"}}}},
		}}}), wire.Status_OK)
		if inForce() != 1 {
			t.Errorf("with a policy: %v", inForce())
		}
	})
}
