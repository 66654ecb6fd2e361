package quota

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// interval is how often the monitor looks.
	interval = 5 * time.Second
	// nearPercent is the part of a quota from which on it counts as nearly used up.
	nearPercent = 80
	// maxWarned bounds the quotas that the monitor remembers to have warned of.
	maxWarned = 10_000
	// accountsAtOnce bounds how many identities are read before the state can change again.
	accountsAtOnce = 1_000
)

// Replica is the node that the monitor watches.
type Replica interface {
	Source
	// View calls f with the applied state. f must be short.
	View(f func(*fsm.Machine))
	// Serving reports whether this node leads. Only the leader warns of quotas of the replicated state.
	Serving() bool
}

// Monitor counts the identities that have nearly used up a quota. All methods are safe for concurrent use.
type Monitor struct {
	node     *Node
	replica  Replica
	warnings *ratelog.Logger

	mu         sync.Mutex // guards the fields below
	near, full map[string]uint64
	warned     map[string]bool // by identity or prefix and kind
}

// kinds are the quotas that the metrics distinguish. Identities and prefixes are not labels: whoever reads the metrics
// may not be allowed to know them.
var kinds = []string{"sessions", "claims", "bytes", "watches", "connections", "requests_per_second", "prefix_claims"}

// NewMonitor returns a monitor whose metrics are registered.
func NewMonitor(node *Node, replica Replica, log hclog.Logger, registry prometheus.Registerer) (*Monitor, error) {
	m := &Monitor{node: node, replica: replica, warnings: ratelog.New(log), warned: map[string]bool{}}
	var errs []error
	for _, kind := range kinds {
		labels := prometheus.Labels{"quota": kind}
		errs = append(errs,
			registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "quorumlock_quota_identities_near", Help: "Identities, or for prefix_claims prefixes, that use 80 % of a quota or more.", ConstLabels: labels,
			}, func() float64 { return m.count(&m.near, kind) })),
			registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "quorumlock_quota_identities_full", Help: "Identities, or for prefix_claims prefixes, that use all of a quota.", ConstLabels: labels,
			}, func() float64 { return m.count(&m.full, kind) })))
	}
	return m, errors.Join(errs...)
}

func (m *Monitor) count(counts *map[string]uint64, kind string) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return float64((*counts)[kind])
}

// Run looks until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.Look()
		}
	}
}

// look is one pass over all quotas.
type look struct {
	monitor    *Monitor
	near, full map[string]uint64
	warned     map[string]bool
}

// Look counts once, and warns of quotas that have been nearly used up since it last looked.
func (m *Monitor) Look() {
	m.node.Sweep()
	now := look{m, map[string]uint64{}, map[string]uint64{}, map[string]bool{}}
	if rights := m.replica.Access().Rights(); rights.HasQuotas() || rights.HasPrefixQuotas() {
		now.replicated(m.replica.Serving())
		m.node.each(func(identity string, use Use, q *wire.Quota) {
			now.note("watches", identity, use.Watches, q.Watches, true)
			now.note("connections", identity, use.Connections, q.Connections, true)
			now.note("requests_per_second", identity, use.Requests, q.RequestsPerSecond, true)
		})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.near, m.full, m.warned = now.near, now.full, now.warned
}

// usage is how much of a quota is used.
type usage struct {
	kind, whose string
	used, limit uint64
}

// replicated looks at the quotas of the replicated state, a part of the identities at a time. It logs while nothing waits
// for the state.
func (l *look) replicated(warns bool) {
	var found []usage
	l.monitor.replica.View(func(m *fsm.Machine) {
		m.EachPrefix(func(claims uint64, q *wire.Quota) {
			found = append(found, usage{"prefix_claims", q.Prefix, claims, q.Claims})
		})
	})
	for last, more := "", true; more; {
		more = false
		l.monitor.replica.View(func(m *fsm.Machine) {
			n := 0
			m.EachAccount(last, func(identity string, used fsm.Used, q *wire.Quota) bool {
				if n == accountsAtOnce {
					more = true
					return false
				}
				n++
				last = identity
				found = append(found, usage{"sessions", identity, used.Sessions, q.GetSessions()},
					usage{"claims", identity, used.Claims, q.GetClaims()}, usage{"bytes", identity, used.Bytes, q.GetBytes()})
				return true
			})
		})
		for _, u := range found {
			l.note(u.kind, u.whose, u.used, u.limit, warns)
		}
		found = found[:0]
	}
}

func (l *look) note(kind, whose string, used, limit uint64, warns bool) {
	if limit == 0 || float64(used) < float64(limit)*nearPercent/100 {
		return
	}
	l.near[kind]++
	if used >= limit {
		l.full[kind]++
	}
	if !warns || len(l.warned) >= maxWarned {
		return
	}
	key := kind + " " + whose
	l.warned[key] = true
	if !l.monitor.warned[key] {
		l.monitor.warnings.Warn("a quota is nearly used up", "quota", strings.TrimPrefix(kind, "prefix_"), "of", wire.Printable(whose), "used", used, "limit", limit, "percent", fmt.Sprint(uint64(float64(used)/float64(limit)*100)))
	}
}
