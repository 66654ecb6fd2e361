package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/test/history"
)

// news is a revision known at a time.
type news struct {
	at       time.Duration
	revision uint64
	from     string
}

// realTime compares the order of revisions with real time: a command has a later revision, and a read no
// earlier one, than anything that was reported before it was sent.
func realTime(r *replay) (faults []string) {
	known := r.news()
	asked := r.questions()
	slices.SortFunc(asked, func(a, b question) int { return cmp.Compare(a.at, b.at) })
	latest, next := news{}, 0
	for _, q := range asked {
		for ; next < len(known) && known[next].at < q.at; next++ {
			if known[next].revision > latest.revision {
				latest = known[next]
			}
		}
		if q.revision < latest.revision+q.after {
			faults = append(faults, fmt.Sprintf("%s asked for at %v has revision %d; revision %d was told at %v already (%s)",
				q.what, q.at, q.revision, latest.revision, latest.at, latest.from))
		}
	}
	return faults
}

// news returns all revisions that clients received, ordered by time.
func (r *replay) news() []news {
	var all []news
	for _, t := range r.in.History.Told() {
		all = append(all, news{t.At, t.Result.GetRevision(), t.Client})
	}
	for _, op := range r.in.History.Ops() {
		if op.Outcome == history.OK {
			all = append(all, news{op.Return, max(op.Result().GetRevision(), readRevision(op)), op.Client})
		}
	}
	for _, p := range r.surePairs() {
		if p.request.Outcome == history.OK {
			all = append(all, news{p.request.Return, p.effect.revision, p.request.Client})
		}
	}
	slices.SortFunc(all, func(a, b news) int { return cmp.Compare(a.at, b.at) })
	return all
}

// question is a request with the time at which it was first sent, and its revision in the log. The revision
// of a command must be greater than all revisions known before (after is 1); that of a read may be equal to
// the greatest (after is 0).
type question struct {
	at       time.Duration
	revision uint64
	after    uint64
	what     string
}

func (r *replay) questions() []question {
	var all []question
	seen := map[request]bool{}
	for _, op := range r.in.History.Ops() {
		key := request{op.Session, op.Seq}
		if revision, done := r.executed[key]; op.Seq != 0 && done && !seen[key] {
			seen[key] = true
			all = append(all, question{op.Call, revision, 1, fmt.Sprintf("request %d of session %d", op.Seq, op.Session)})
		}
		if revision := readRevision(op); revision != 0 && !stale(op) {
			all = append(all, question{op.Call, revision, 0, "a read, " + op.Kind + ","})
		}
		if ownRevision(op) && op.Result().GetRevision() >= r.first {
			all = append(all, question{op.Call, op.Result().Revision, 1, op.Kind})
		}
	}
	for _, p := range r.surePairs() {
		all = append(all, question{p.request.Call, p.effect.revision, 1, fmt.Sprintf("%s of %q by %s", p.request.Action, p.request.Lock, p.request.Client)})
	}
	return all
}

// surePairs returns the requests for keys whose revision is certain, once requests have been matched with the log.
func (r *replay) surePairs() []keyPair {
	if r.keys == nil {
		return nil
	}
	return r.keys.certain(r.in.History.KeyRequests())
}
