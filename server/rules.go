package server

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/transport"
)

// rule is one limit of one number in the configuration. A number with two limits has two rules.
type rule struct {
	flag  string // the flag that sets the number, without the dashes
	value any
	limit string // human-readable, such as "at least 10ms"
	kept  bool
}

func atLeast[T cmp.Ordered](flag string, value, least T) rule {
	return rule{flag, value, fmt.Sprint("at least ", least), value >= least}
}

func atMost[T cmp.Ordered](flag string, value, most T) rule {
	return rule{flag, value, fmt.Sprint("at most ", most), value <= most}
}

func lessThan[T cmp.Ordered](flag string, value, bound T) rule {
	return rule{flag, value, fmt.Sprint("less than ", bound), value < bound}
}

// because adds the reason for the limit to the error message.
func (r rule) because(format string, args ...any) rule {
	r.limit += ", " + fmt.Sprintf(format, args...)
	return r
}

// rules returns all limits of numbers except those of single settings, which fsm.CheckSettings checks.
func (c Config) rules() []rule {
	return slices.Concat(c.logRules(), c.timeoutRules(), c.settingRules(), c.connectionRules(), c.memoryRules())
}

func (c Config) checkNumbers() (faults []error) {
	for _, r := range c.rules() {
		if !r.kept {
			faults = append(faults, fmt.Errorf("--%s %v: use %s", r.flag, r.value, r.limit))
		}
	}
	for _, fault := range fsm.CheckSettings(c.Settings) {
		faults = append(faults, fmt.Errorf("--%s %d: use %d to %d", settingFlag(fault.Name), fault.Value, fault.Min, fault.Max))
	}
	return append(faults, c.checkLevel()...)
}

// checkLevel returns an error if a new cluster would begin at a feature level that the node must not use.
func (c Config) checkLevel() []error {
	if needed := fsm.LevelOfSettings(c.Settings); c.FeatureLevel < needed {
		return []error{fmt.Errorf("--feature-level %d: --max-cached-idle and --no-cached-holds need level %d: leave them out, or --feature-level", c.FeatureLevel, needed)}
	}
	return nil
}

func (c Config) logRules() []rule {
	return []rule{
		atLeast("log-segment-bytes", c.LogSegmentBytes, 64<<10),
		atMost("log-segment-bytes", c.LogSegmentBytes, 1<<30),
		atMost("feature-level", c.FeatureLevel, fsm.Level).because("the highest that this program supports"),
	}
}

func (c Config) timeoutRules() []rule {
	return []rule{
		atLeast("heartbeat-timeout", c.HeartbeatTimeout, 10*time.Millisecond),
		atLeast("election-timeout", c.ElectionTimeout, c.HeartbeatTimeout).because("the --heartbeat-timeout"),
		atLeast("leader-lease-timeout", c.LeaderLeaseTimeout, 10*time.Millisecond),
		atMost("leader-lease-timeout", c.LeaderLeaseTimeout, c.HeartbeatTimeout).because("the --heartbeat-timeout"),
		atLeast("commit-timeout", c.CommitTimeout, time.Millisecond),
		lessThan("commit-timeout", c.CommitTimeout, c.HeartbeatTimeout).because("the --heartbeat-timeout"),
		atLeast("hash-interval", c.HashInterval, 100*time.Millisecond),
		atLeast("autopilot-stabilization", c.Autopilot.Stabilization, 1),
		atLeast("autopilot-dead-after", c.Autopilot.DeadAfter, 10*c.ElectionTimeout).because("ten times --election-timeout: a node that restarts is not dead"),
		atLeast("autopilot-min-quorum", c.Autopilot.MinQuorum, 3).because("fewer voters tolerate no failure"),
		atLeast("disk-timeout", c.DiskTimeout, 100*time.Millisecond),
		atLeast("shutdown-timeout", c.ShutdownTimeout, 1),
		atLeast("redis-default-ttl", c.Redis.DefaultTTL, 0),
		atMost("redis-default-ttl", c.Redis.DefaultTTL, millis(math.MaxInt32)),
		atLeast("handshake-timeout", c.Limits.HandshakeTimeout, 1),
		atLeast("frame-timeout", c.Limits.FrameTimeout, 1),
		atLeast("idle-timeout", c.Limits.IdleTimeout, 1),
		atLeast("admin-timeout", c.Limits.AdminTimeout, 1),
	}
}

func (c Config) settingRules() []rule {
	s := c.Settings
	return []rule{
		atLeast("min-ttl", millis(s.MinTtlMs), 2*c.ElectionTimeout).because("twice --election-timeout: sessions would not outlive a fail-over"),
		atMost("min-ttl", millis(s.MinTtlMs), millis(s.MaxTtlMs)).because("the --max-ttl"),
		atLeast("default-ttl", millis(s.DefaultTtlMs), millis(s.MinTtlMs)).because("the --min-ttl"),
		atMost("default-ttl", millis(s.DefaultTtlMs), millis(s.MaxTtlMs)).because("the --max-ttl"),
		atLeast("max-lease-ttl", millis(s.MaxLeaseTtlMs), millis(s.DefaultTtlMs)).because("the --default-ttl"),
		atMost("min-key-ttl", millis(s.MinKeyTtlMs), millis(s.MaxKeyTtlMs)).because("the --max-key-ttl"),
		atMost("max-session-bytes", s.MaxSessionBytes, s.MaxStateBytes).because("the --max-state-bytes"),
		atMost("token-floor", c.TokenFloor, replica.MaxTokenFloor(time.Now())).because("which is a year above the clock"),
	}
}

// settingFlag returns the flag of a setting: its name in the schema without unit and scope.
func settingFlag(name string) string {
	for _, tail := range []string{"_ms", "_per_lock", "_per_session"} {
		name = strings.TrimSuffix(name, tail)
	}
	return strings.ReplaceAll(name, "_", "-")
}

// frameOverhead is the room a frame needs besides a value and a client's description, in bytes.
const frameOverhead = 4 << 10

func (c Config) connectionRules() []rule {
	l := c.Limits
	payload := int64(c.Settings.MaxValueBytes) + int64(c.Settings.MaxClientInfoBytes) + frameOverhead
	return []rule{
		atLeast("max-connections", l.MaxConnections, 1),
		atLeast("max-tunnels", l.MaxTunnels, 1),
		atMost("max-tunnels", l.MaxTunnels, l.MaxConnections).because("the --max-connections"),
		atLeast("max-handshakes", l.MaxHandshakes, 2),
		atLeast("max-in-flight", l.MaxInFlight, 1),
		atLeast("max-frame-bytes", l.MaxFrameBytes, 64<<10),
		atMost("max-frame-bytes", l.MaxFrameBytes, transport.FrameCeiling),
		atLeast("max-frame-bytes", int64(l.MaxFrameBytes), payload).because("the room for --max-value-bytes %d and --max-client-info-bytes %d", c.Settings.MaxValueBytes, c.Settings.MaxClientInfoBytes),
		atLeast("max-outbox-bytes", l.MaxOutboxBytes, 4*l.MaxFrameBytes).because("four frames of --max-frame-bytes %d", l.MaxFrameBytes),
	}
}
