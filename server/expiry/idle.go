package expiry

import (
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxIdleMs bounds what a client reports, so that it fits a time.Duration.
const maxIdleMs = 1 << 40

// Report is State. If the session is alive, it also records which of the session's cached holds are not in use, as a
// heartbeat that arrived at the given time reported. That replaces what an earlier heartbeat reported.
func (d *Deadlines) Report(term, session uint64, idle []*wire.IdleHold, arrived time.Time) State {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.term != term {
		return Inactive
	}
	_, state := d.find(session)
	switch {
	case state != Alive:
	case len(idle) == 0:
		delete(d.used, session)
	default:
		d.used[session] = lastUses(idle, arrived)
	}
	return state
}

// lastUses returns when each of the reported holds was last in use.
func lastUses(idle []*wire.IdleHold, arrived time.Time) map[uint64]time.Time {
	used := make(map[uint64]time.Time, len(idle))
	for _, one := range idle {
		used[one.GetHoldId()] = arrived.Add(-time.Duration(min(one.GetIdleMs(), maxIdleMs)) * time.Millisecond)
	}
	return used
}

// IdleFor returns the time since the last use of a hold that its session's last heartbeat reported as not in use.
func (d *Deadlines) IdleFor(session, hold uint64) (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, state := d.find(session); state != Alive {
		return 0, false
	}
	used, idle := d.used[session][hold]
	return time.Since(used), idle
}
