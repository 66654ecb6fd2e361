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

// Bounds of settings that bound memory themselves.
const (
	maxTTLMs           = 1 << 31
	maxValueBytes      = 64 << 10
	maxClientInfoBytes = 64 << 10
)

// completeSettings fills in defaults for what is 0 and refuses what cannot be.
func completeSettings(given *wire.Settings) (*wire.Settings, error) {
	s := DefaultSettings()
	if most := given.GetMaxStateBytes(); most != 0 {
		s.MaxSessionBytes = min(s.MaxSessionBytes, most)
	}
	if given != nil {
		proto.Merge(s, given) // keeps s where given is 0
	}
	switch {
	case s.MinTtlMs > s.DefaultTtlMs || s.DefaultTtlMs > s.MaxTtlMs:
		return nil, fmt.Errorf("min_ttl_ms %d, default_ttl_ms %d and max_ttl_ms %d must ascend", s.MinTtlMs, s.DefaultTtlMs, s.MaxTtlMs)
	case s.MaxTtlMs > maxTTLMs:
		return nil, fmt.Errorf("max_ttl_ms is %d: at most %d is allowed", s.MaxTtlMs, uint32(maxTTLMs))
	case s.MaxValueBytes > maxValueBytes:
		return nil, fmt.Errorf("max_value_bytes is %d: at most %d is allowed", s.MaxValueBytes, maxValueBytes)
	case s.MaxClientInfoBytes > maxClientInfoBytes:
		return nil, fmt.Errorf("max_client_info_bytes is %d: at most %d is allowed", s.MaxClientInfoBytes, maxClientInfoBytes)
	case s.MaxSessionBytes < MinSessionBytes || s.MaxSessionBytes > s.MaxStateBytes:
		return nil, fmt.Errorf("max_session_bytes is %d: from %d to max_state_bytes, %d, is allowed", s.MaxSessionBytes, MinSessionBytes, s.MaxStateBytes)
	case s.MaxStateBytes < MinStateBytes || s.MaxStateBytes > maxStateUnits:
		return nil, fmt.Errorf("max_state_bytes is %d: from %d to %d is allowed", s.MaxStateBytes, MinStateBytes, uint64(maxStateUnits))
	}
	return s, nil
}
