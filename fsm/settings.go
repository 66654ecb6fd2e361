package fsm

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// DefaultSettings returns the limits of a cluster that was given none.
//
// A session's claims and window are bounded so that its whole state, with names of the greatest length,
// fits into one frame of 1 MiB when the session is resumed.
func DefaultSettings() *wire.Settings {
	return &wire.Settings{
		MinTtlMs:            5_000,
		MaxTtlMs:            600_000,
		DefaultTtlMs:        15_000,
		MaxSessions:         100_000,
		MaxLocks:            1_000_000,
		MaxWaitersPerLock:   100_000,
		MaxClaimsPerSession: 1_024,
		MaxWindow:           1_024,
		MaxValueBytes:       1_024,
		MaxClientInfoBytes:  4_096,
		MaxStateBytes:       DefaultStateBytes,
		MaxSessionBytes:     8 << 20,
		MaxLeaseTtlMs:       7 * 24 * 60 * 60 * 1_000,
		MinKeyTtlMs:         10,
		MaxKeyTtlMs:         24 * 60 * 60 * 1_000,
	}
}

// DefaultStateBytes is the default budget of the state, in units.
const DefaultStateBytes = 1 << 30

const (
	maxTTLMs           = 1 << 31
	maxValueBytes      = 64 << 10
	maxClientInfoBytes = 64 << 10
)

// settingBound bounds one setting, identified by its name in the schema.
type settingBound struct {
	name     string
	min, max uint64
	of       func(*wire.Settings) uint64
}

// settingBounds lists every setting, and is the only place that defines its bounds: at bootstrap, for
// flags and for the contents of a backup. The lower bounds still allow a small cluster to work, so that
// settings cannot put a cluster out of service; the upper ones bound memory.
var settingBounds = []settingBound{
	{"min_ttl_ms", 100, maxTTLMs, func(s *wire.Settings) uint64 { return uint64(s.MinTtlMs) }},
	{"max_ttl_ms", 100, maxTTLMs, func(s *wire.Settings) uint64 { return uint64(s.MaxTtlMs) }},
	{"default_ttl_ms", 100, maxTTLMs, func(s *wire.Settings) uint64 { return uint64(s.DefaultTtlMs) }},
	{"max_sessions", 16, 1 << 24, (*wire.Settings).GetMaxSessions},
	{"max_locks", 64, 1 << 28, (*wire.Settings).GetMaxLocks},
	{"max_waiters_per_lock", 16, 1 << 24, (*wire.Settings).GetMaxWaitersPerLock},
	{"max_claims_per_session", 64, 1 << 21, (*wire.Settings).GetMaxClaimsPerSession},
	{"max_window", 64, 1 << 21, (*wire.Settings).GetMaxWindow},
	{"max_value_bytes", 64, maxValueBytes, func(s *wire.Settings) uint64 { return uint64(s.MaxValueBytes) }},
	{"max_client_info_bytes", 256, maxClientInfoBytes, func(s *wire.Settings) uint64 { return uint64(s.MaxClientInfoBytes) }},
	{"max_state_bytes", MinStateBytes, maxStateUnits, (*wire.Settings).GetMaxStateBytes},
	{"max_session_bytes", MinSessionBytes, maxStateUnits, (*wire.Settings).GetMaxSessionBytes},
	{"max_lease_ttl_ms", 100, maxTTLMs, func(s *wire.Settings) uint64 { return uint64(s.MaxLeaseTtlMs) }},
	{"min_key_ttl_ms", 10, maxTTLMs, func(s *wire.Settings) uint64 { return uint64(s.MinKeyTtlMs) }},
	{"max_key_ttl_ms", 10, maxTTLMs, func(s *wire.Settings) uint64 { return uint64(s.MaxKeyTtlMs) }},
	{"max_cached_idle_ms", 100, maxTTLMs, func(s *wire.Settings) uint64 { return uint64(s.MaxCachedIdleMs) }},
}

// SettingError is the error for a setting that is out of its bounds.
type SettingError struct {
	// Name is the name of the field of [wire.Settings].
	Name            string
	Value, Min, Max uint64
}

// Error names the setting, its value and its bounds.
func (e *SettingError) Error() string {
	return fmt.Sprintf("%s is %d: %d to %d is allowed", e.Name, e.Value, e.Min, e.Max)
}

// CheckSettings returns a [SettingError] for each setting that is given, meaning not 0, and out of its bounds.
func CheckSettings(given *wire.Settings) (faults []*SettingError) {
	for _, b := range settingBounds {
		if value := b.of(given); value != 0 && (value < b.min || value > b.max) {
			faults = append(faults, &SettingError{b.name, value, b.min, b.max})
		}
	}
	return faults
}

// completeSettings replaces settings that are 0 by their defaults, and returns an error for values that
// are not allowed.
func completeSettings(given *wire.Settings) (*wire.Settings, error) {
	s := DefaultSettings()
	if most := given.GetMaxStateBytes(); most != 0 {
		s.MaxSessionBytes = min(s.MaxSessionBytes, most)
	}
	s.MaxLeaseTtlMs = max(s.MaxLeaseTtlMs, given.GetMaxTtlMs())
	if given != nil {
		proto.Merge(s, given) // keeps the value of s where given has 0
	}
	if faults := CheckSettings(s); len(faults) > 0 {
		return nil, faults[0]
	}
	if s.MinTtlMs > s.DefaultTtlMs || s.DefaultTtlMs > s.MaxTtlMs {
		return nil, fmt.Errorf("min_ttl_ms %d, default_ttl_ms %d and max_ttl_ms %d must ascend", s.MinTtlMs, s.DefaultTtlMs, s.MaxTtlMs)
	}
	if s.DefaultTtlMs > s.MaxLeaseTtlMs {
		return nil, fmt.Errorf("max_lease_ttl_ms is %d: at least default_ttl_ms, %d, is allowed", s.MaxLeaseTtlMs, s.DefaultTtlMs)
	}
	if s.MinKeyTtlMs > s.MaxKeyTtlMs {
		return nil, fmt.Errorf("min_key_ttl_ms %d and max_key_ttl_ms %d must ascend", s.MinKeyTtlMs, s.MaxKeyTtlMs)
	}
	if s.MaxSessionBytes > s.MaxStateBytes {
		return nil, fmt.Errorf("max_session_bytes is %d: at most max_state_bytes, %d, is allowed", s.MaxSessionBytes, s.MaxStateBytes)
	}
	return s, nil
}
