package server

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/test/bubble"
)

// edge is the last value that a rule allows for a field of the Config that valid returns. limit is the start
// of the rule's limit.
type edge struct {
	flag, limit string
	last        uint64
	number      func(*Config) any
}

func edges() []edge {
	const ms = uint64(time.Millisecond)
	const free = 4<<30 - fixedMemory
	return []edge{
		{"log-segment-bytes", "at least 65536", 65536, func(c *Config) any { return &c.LogSegmentBytes }},
		{"log-segment-bytes", "at most 1073741824", 1 << 30, func(c *Config) any { return &c.LogSegmentBytes }},
		{"heartbeat-timeout", "at least 10ms", 10 * ms, func(c *Config) any { return &c.HeartbeatTimeout }},
		{"election-timeout", "at least 500ms, the --heartbeat-timeout", 500 * ms, func(c *Config) any { return &c.ElectionTimeout }},
		{"leader-lease-timeout", "at least 10ms", 10 * ms, func(c *Config) any { return &c.LeaderLeaseTimeout }},
		{"leader-lease-timeout", "at most 500ms, the --heartbeat-timeout", 500 * ms, func(c *Config) any { return &c.LeaderLeaseTimeout }},
		{"commit-timeout", "at least 1ms", ms, func(c *Config) any { return &c.CommitTimeout }},
		{"commit-timeout", "less than 500ms, the --heartbeat-timeout", 500*ms - 1, func(c *Config) any { return &c.CommitTimeout }},
		{"hash-interval", "at least 100ms", 100 * ms, func(c *Config) any { return &c.HashInterval }},
		{"autopilot-stabilization", "at least 1ns", 1, func(c *Config) any { return &c.Autopilot.Stabilization }},
		{"autopilot-dead-after", "at least 5s, ten times --election-timeout", 5_000 * ms, func(c *Config) any { return &c.Autopilot.DeadAfter }},
		{"autopilot-min-quorum", "at least 3, fewer voters", 3, func(c *Config) any { return &c.Autopilot.MinQuorum }},
		{"disk-timeout", "at least 100ms", 100 * ms, func(c *Config) any { return &c.DiskTimeout }},
		{"shutdown-timeout", "at least 1ns", 1, func(c *Config) any { return &c.ShutdownTimeout }},
		{"redis-default-ttl", "at least 0s", 0, func(c *Config) any { return &c.Redis.DefaultTTL }},
		{"redis-default-ttl", "at most 596h31m23.647s", math.MaxInt32 * ms, func(c *Config) any { return &c.Redis.DefaultTTL }},
		{"handshake-timeout", "at least 1ns", 1, func(c *Config) any { return &c.Limits.HandshakeTimeout }},
		{"frame-timeout", "at least 1ns", 1, func(c *Config) any { return &c.Limits.FrameTimeout }},
		{"idle-timeout", "at least 1ns", 1, func(c *Config) any { return &c.Limits.IdleTimeout }},
		{"admin-timeout", "at least 1ns", 1, func(c *Config) any { return &c.Limits.AdminTimeout }},
		{"min-ttl", "at least 1s, twice --election-timeout", 1_000, func(c *Config) any { return &c.Settings.MinTtlMs }},
		{"min-ttl", "at most 10m0s, the --max-ttl", 600_000, func(c *Config) any { return &c.Settings.MinTtlMs }},
		{"default-ttl", "at least 5s, the --min-ttl", 5_000, func(c *Config) any { return &c.Settings.DefaultTtlMs }},
		{"default-ttl", "at most 10m0s, the --max-ttl", 600_000, func(c *Config) any { return &c.Settings.DefaultTtlMs }},
		{"max-lease-ttl", "at least 15s, the --default-ttl", 15_000, func(c *Config) any { return &c.Settings.MaxLeaseTtlMs }},
		{"min-key-ttl", "at most 24h0m0s, the --max-key-ttl", 86_400_000, func(c *Config) any { return &c.Settings.MinKeyTtlMs }},
		{"max-session-bytes", "at most 1073741824, the --max-state-bytes", 1 << 30, func(c *Config) any { return &c.Settings.MaxSessionBytes }},
		{"token-floor", "at most ", replica.MaxTokenFloor(time.Now()), func(c *Config) any { return &c.TokenFloor }},
		{"max-connections", "at least 1", 1, func(c *Config) any { return &c.Limits.MaxConnections }},
		{"max-tunnels", "at least 1", 1, func(c *Config) any { return &c.Limits.MaxTunnels }},
		{"max-tunnels", "at most 10000, the --max-connections", 10_000, func(c *Config) any { return &c.Limits.MaxTunnels }},
		{"max-handshakes", "at least 2", 2, func(c *Config) any { return &c.Limits.MaxHandshakes }},
		{"max-in-flight", "at least 1", 1, func(c *Config) any { return &c.Limits.MaxInFlight }},
		{"max-frame-bytes", "at least 65536", 65536, func(c *Config) any { return &c.Limits.MaxFrameBytes }},
		{"max-frame-bytes", "at most 16777216", 16 << 20, func(c *Config) any { return &c.Limits.MaxFrameBytes }},
		{"max-frame-bytes", "at least 9216, the room for", 9216, func(c *Config) any { return &c.Limits.MaxFrameBytes }},
		{"max-outbox-bytes", "at least 4194304, four frames", 4 << 20, func(c *Config) any { return &c.Limits.MaxOutboxBytes }},
		{"memory-limit", "at least 134217728", 128 << 20, func(c *Config) any { return &c.MemoryLimit }},
		{"max-buffer-bytes", "at least 8388608", 8 << 20, func(c *Config) any { return &c.MaxBufferBytes }},
		{"max-buffer-bytes", "at most 2113929216, to leave room", free / 2, func(c *Config) any { return &c.MaxBufferBytes }},
		{"feature-level", fmt.Sprintf("at most %d, the highest", fsm.Level), fsm.Level, func(c *Config) any { return &c.FeatureLevel }},
		{"max-state-bytes", "at most 3690987520, to fit", free - 4<<30/8, func(c *Config) any { return &c.Settings.MaxStateBytes }},
	}
}

// next returns the first value that the rule rejects. 0 would select the default.
func (e edge) next() uint64 {
	switch {
	case !strings.HasPrefix(e.limit, "at least"):
		return e.last + 1
	case e.last == 1:
		return 1<<64 - 1 // -1
	default:
		return e.last - 1
	}
}

// fault returns the expected text of Validate's error for a value, and the error.
func (e edge) fault(value uint64) (says string, err error) {
	cfg := valid()
	field := reflect.ValueOf(e.number(&cfg)).Elem()
	if field.CanInt() {
		field.SetInt(int64(value))
	} else {
		field.SetUint(value)
	}
	shown := field.Interface()
	if n, ok := shown.(uint32); ok && strings.HasSuffix(e.flag, "ttl") {
		shown = millis(n)
	}
	return fmt.Sprintf("--%s %v: use %s", e.flag, shown, e.limit), cfg.Validate()
}

// TestEachRuleAtItsEdge tries the last value that each rule allows, and the next one. It runs in a bubble,
// because one of the rules depends on the clock, which stands still there.
func TestEachRuleAtItsEdge(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		all := edges()
		for _, e := range all {
			if says, err := e.fault(e.last); err != nil && strings.Contains(err.Error(), says) {
				t.Errorf("the last value that is allowed: %v", err)
			}
			if says, err := e.fault(e.next()); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want %q", err, says)
			}
		}
		rules := valid().withDefaults().rules()
		for _, r := range rules {
			if !slices.ContainsFunc(all, func(e edge) bool { return e.flag == r.flag && strings.HasPrefix(r.limit, e.limit) }) {
				t.Errorf("no row tries --%s: %s", r.flag, r.limit)
			}
		}
		if len(rules) != len(all) {
			t.Errorf("%d rules, %d rows", len(rules), len(all))
		}
	})
}
