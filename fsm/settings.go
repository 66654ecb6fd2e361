package fsm

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// DefaultSettings returns the limits of a cluster that was given none.
//
// A session's claims and window are bounded so that its whole state, each name at
// its longest, fits one frame of 1 MiB when it is resumed.
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
	}
}

// DefaultStateBytes is the budget of the state in a cluster that was given none.
const DefaultStateBytes = 1 << 30

const (
	maxTTLMs           = 1 << 31
	maxValueBytes      = 64 << 10
	maxClientInfoBytes = 64 << 10
)

// settingBound is what one setting may be, by its name in the schema.
type settingBound struct {
	name     string
	min, max uint64
	of       func(*wire.Settings) uint64
}

// settingBounds has every setting, and is the only place that says what it may be: at
// bootstrap, for flags and for what a backup brings. The least still serve a small cluster,
// so that nobody shuts one down by its settings; the most bound memory.
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
}

// SettingError says that a setting is out of its bounds.
type SettingError struct {
	// Name is that of the field of [wire.Settings].
	Name            string
	Value, Min, Max uint64
}

// Error names the setting and what it may be.
func (e *SettingError) Error() string {
	return fmt.Sprintf("%s is %d: %d to %d is allowed", e.Name, e.Value, e.Min, e.Max)
}

// CheckSettings returns a [SettingError] for each setting that is given, that is not 0,
// and out of its bounds.
func CheckSettings(given *wire.Settings) (faults []*SettingError) {
	for _, b := range settingBounds {
		if value := b.of(given); value != 0 && (value < b.min || value > b.max) {
			faults = append(faults, &SettingError{b.name, value, b.min, b.max})
		}
	}
	return faults
}

// completeSettings fills in defaults for what is 0 and refuses what cannot be.
func completeSettings(given *wire.Settings) (*wire.Settings, error) {
	s := DefaultSettings()
	if most := given.GetMaxStateBytes(); most != 0 {
		s.MaxSessionBytes = min(s.MaxSessionBytes, most)
	}
	if given != nil {
		proto.Merge(s, given) // keeps s where given is 0
	}
	if faults := CheckSettings(s); len(faults) > 0 {
		return nil, faults[0]
	}
	if s.MinTtlMs > s.DefaultTtlMs || s.DefaultTtlMs > s.MaxTtlMs {
		return nil, fmt.Errorf("min_ttl_ms %d, default_ttl_ms %d and max_ttl_ms %d must ascend", s.MinTtlMs, s.DefaultTtlMs, s.MaxTtlMs)
	}
	if s.MaxSessionBytes > s.MaxStateBytes {
		return nil, fmt.Errorf("max_session_bytes is %d: at most max_state_bytes, %d, is allowed", s.MaxSessionBytes, s.MaxStateBytes)
	}
	return s, nil
}
