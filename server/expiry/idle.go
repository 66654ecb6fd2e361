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
	e, state := d.find(session)
	if state == Alive {
		e.used = lastUses(idle, arrived)
	}
	return state
}

// lastUses returns when each of the reported holds was last in use; nil if there are none.
func lastUses(idle []*wire.IdleHold, arrived time.Time) map[uint64]time.Time {
	if len(idle) == 0 {
		return nil
	}
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
	e, state := d.find(session)
	if state != Alive {
		return 0, false
	}
	used, idle := e.used[hold]
	return time.Since(used), idle
}

// forgetUse is called with mu held when a hold has ended.
func (d *Deadlines) forgetUse(session, hold uint64) {
	if e := d.tables[Session][session]; e != nil {
		delete(e.used, hold)
	}
}
