package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// expiries checks the end of every session that a client kept alive. It must not end before the client gave
// up, and at the latest two TTLs after its last sign of life or the last new leader's barrier, whichever came
// later. A request that a fault held back may have arrived when the fault was healed.
func expiries(r *replay) (faults []string) {
	over := map[uint64]step{}
	ended := map[uint64]bool{}
	for _, s := range r.steps {
		for _, e := range s.events {
			if e.Type == wire.Event_SESSION_EXPIRED {
				over[e.SessionId] = s
			}
			ended[e.SessionId] = ended[e.SessionId] || e.Type == wire.Event_SESSION_EXPIRED || e.Type == wire.Event_SESSION_CLOSED
		}
	}
	w, end := r.bounds(), r.end()
	for _, s := range r.in.History.Sessions() {
		expiry, expired := over[s.ID]
		switch {
		case expired:
			faults = append(faults, r.judgeExpiry(s, expiry, w)...)
		case !ended[s.ID] && !r.before(s.ID) && end > r.latest(s.Tried, 2*s.TTL, end, math.MaxUint64):
			faults = append(faults, fmt.Sprintf("session %d of %s was heard of last at %v, TTL %v, and lives at %v", s.ID, s.Client, s.Tried, s.TTL, end))
		}
	}
	slices.Sort(faults)
	return faults
}

func (r *replay) judgeExpiry(s history.Session, expiry step, w bounds) (faults []string) {
	from, to := w.around(expiry.revision)
	if r.in.Bounds.Stamps {
		from, to = max(from, expiry.at), min(to, expiry.at+stampRound)
	}
	if to < s.Deadline() {
		faults = append(faults, fmt.Sprintf("session %d of %s expired by %v, before its client's deadline %v", s.ID, s.Client, to, s.Deadline()))
	}
	if latest := r.latest(s.Tried, 2*s.TTL, from, expiry.revision); from > latest {
		faults = append(faults, fmt.Sprintf("session %d of %s expired at %v only; its last sign of life left at %v, TTL %v", s.ID, s.Client, from, s.Tried, s.TTL))
	}
	return faults
}

// latest returns the latest acceptable time of an event that is due at since plus due. over and revision are
// the actual time and revision of the event: only what happened before it counts. New leaders restart
// deadlines, and faults delay them until they are healed.
func (r *replay) latest(since, due, over time.Duration, revision uint64) time.Duration {
	if r.restarts == nil {
		r.restarts = r.beginnings()
	}
	for _, started := range r.restarts {
		switch {
		case started.at <= over:
			since = max(since, started.at)
		case started.revision != 0 && started.revision < revision && !r.in.Bounds.Stamps:
			since = over // the exact time is unknown, but it was before revision
		}
	}
	return since + due + r.in.Bounds.Commit + r.in.Bounds.Slack
}

// beginnings returns the times at which deadlines may have been restarted: barriers, and the ends of faults,
// which have no revision. If the log begins with a snapshot, its leader may have been elected just before.
func (r *replay) beginnings() []news {
	all := []news{{}}
	w := r.bounds()
	if r.in.Snapshot != nil && len(r.steps) > 0 {
		all = append(all, news{at: r.steps[0].at, revision: r.first})
	}
	for _, s := range r.steps {
		if s.cmd.GetBeginTerm() == nil {
			continue
		}
		at := s.at
		if !r.in.Bounds.Stamps {
			_, at = w.around(s.revision)
		}
		all = append(all, news{at: at, revision: s.revision})
	}
	for _, record := range r.in.History.Records {
		if m := record.Mark; m != nil && m.What == history.Healed {
			all = append(all, news{at: m.At})
		}
	}
	return all
}

// end returns the last time recorded in the history.
func (r *replay) end() time.Duration {
	end := time.Duration(0)
	for _, record := range r.in.History.Records {
		switch {
		case record.Op != nil:
			end = max(end, record.Op.Call)
		case record.Mark != nil:
			end = max(end, record.Mark.At)
		}
	}
	return end
}

// bounds bounds the time at which a revision was applied by what clients requested and received: a command
// is applied after its request is sent and before its answer arrives.
type bounds struct {
	asked, told []news
}

func (r *replay) bounds() bounds {
	w := bounds{told: r.news()}
	for _, q := range r.questions() {
		if q.after == 1 {
			w.asked = append(w.asked, news{at: q.at, revision: q.revision})
		}
	}
	slices.SortFunc(w.asked, func(a, b news) int { return cmp.Compare(a.revision, b.revision) })
	slices.SortFunc(w.told, func(a, b news) int { return cmp.Compare(a.revision, b.revision) })
	for i := 1; i < len(w.asked); i++ {
		w.asked[i].at = max(w.asked[i].at, w.asked[i-1].at)
	}
	for i := len(w.told) - 2; i >= 0; i-- {
		w.told[i].at = min(w.told[i].at, w.told[i+1].at)
	}
	return w
}

// around returns bounds for the time at which the revision was applied: not before from, and not after to.
func (w bounds) around(revision uint64) (from, to time.Duration) {
	byRevision := func(n news, revision uint64) int { return cmp.Compare(n.revision, revision) }
	to = math.MaxInt64
	if i, _ := slices.BinarySearchFunc(w.asked, revision+1, byRevision); i > 0 {
		from = w.asked[i-1].at
	}
	if i, _ := slices.BinarySearchFunc(w.told, revision, byRevision); i < len(w.told) {
		to = w.told[i].at
	}
	return from, to
}
