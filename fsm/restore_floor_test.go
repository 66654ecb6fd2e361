package fsm

import (
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestRestoreFloor checks that clusters that were restored from one backup have room for many cached holds between each
// other, and that the floor stays within its bound.
func TestRestoreFloor(t *testing.T) {
	const now = 1_790_000_000_000
	ahead := ClockToken(now) + MaxAhead/2 // a counter that is ahead of the clock
	op := func(ms, token uint64) *wire.RestoreBackup {
		return &wire.RestoreBackup{ClockUnixMs: ms, Backup: &wire.Backup{Token: token}}
	}
	first, second := RestoreFloor(op(now, ahead), 0), RestoreFloor(op(now+60_000, ahead), 0)
	if grants := (second - first) / maxCachedTokens; first <= ahead || grants < 60*1_000 {
		t.Errorf("floors %d and %d above %d: room for %d grants in a minute", first, second, ahead, grants)
	}
	given := op(now, ahead)
	given.TokenFloor = first + 1
	if floor := RestoreFloor(given, 0); floor != first+1 {
		t.Errorf("the floor is %d, given was %d", floor, first+1)
	}
	highest := ClockToken(now) + MaxAhead
	if floor := RestoreFloor(op(now, highest), 0); floor != highest {
		t.Errorf("the floor %d is not bounded", floor)
	}
	if floor := RestoreFloor(op(now, highest), highest); floor <= highest {
		t.Errorf("the floor %d is not above the counter", floor)
	}
}
