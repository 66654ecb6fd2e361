package process_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/process"
)

// TestKilledDuringRestore restores one backup after the other into a cluster, and kills nodes at about that
// time: the leader, the node that received the request, or all. Afterwards every node has either its earlier
// state, or everything from the backup and nothing else; no token is granted twice; and a client that got no
// answer repeats the restore and gets one.
func TestKilledDuringRestore(t *testing.T) {
	beside(t)
	hits, most := 2, 12
	if full {
		hits, most = 16, 80
	}
	r := newRestores(t)
	for round := 0; round < most && r.seen.unknown < hits; round++ {
		r.round(round)
	}
	t.Logf("%+v", r.seen)
	if r.seen.unknown < hits {
		t.Errorf("%d kills hit while a restore was under way, want %d", r.seen.unknown, hits)
	}
	if full && (r.seen.unknownOld == 0 || r.seen.unknownNew == 0) {
		t.Error("restores that were cut off always ended in the same way")
	}
	r.refusedWhileInUse()
}

// restores is a cluster into which backups are restored repeatedly.
type restores struct {
	t       *testing.T
	c       *process.Cluster
	id      string // of the cluster
	random  *rand.Rand
	backups []backup
	highest uint64          // largest token granted so far
	known   map[string]bool // lineages so far
	seen    struct {
		done, notDone          int
		unknown                int // no answer, although the request was sent
		unknownOld, unknownNew int // by the state found afterwards
	}
}

// newRestores saves a backup of the cluster itself, and one of another cluster with different settings, which
// continues to grant locks until it is lost.
func newRestores(t *testing.T) *restores {
	r := &restores{t: t, random: rand.New(rand.NewPCG(1, 1)), known: map[string]bool{}}
	lost := process.Start(t, programs, 1, "--max-sessions", "777", "--default-ttl", "33s")
	r.c = process.Start(t, programs, 3, "--hash-interval", hashEvery.String())
	for i, c := range []*process.Cluster{r.c, lost} {
		r.grants(c)
		r.resize(c, fmt.Sprint("act ", i))
		path := filepath.Join(t.TempDir(), "backup.snap")
		qlock(t, c, "snapshot", "save", path, "--reason", "nightly")
		r.backups = append(r.backups, readBackup(t, path))
		r.grants(c)
	}
	lost.Kill9(lost.IDs()...)
	r.id = r.backups[0].request.Backup.ClusterId
	r.known[r.alike().lineage] = true
	r.again(r.backups[1], "the cluster is lost")
	return r
}

// grants acquires locks and returns the lowest of their tokens.
func (r *restores) grants(c *process.Cluster) (lowest uint64) {
	r.t.Helper()
	s := open(r.t, c.Client(), loadTTL)
	for i := range 3 {
		h, err := s.Lock(r.t.Context(), fmt.Sprint("restored/", i))
		if err != nil {
			r.t.Fatal(err)
		}
		if i == 0 {
			lowest = h.Token()
		}
		r.highest = max(r.highest, h.Token())
	}
	if err := s.Close(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	return lowest
}

// resize adds an audit record.
func (r *restores) resize(c *process.Cluster, reason string) {
	r.t.Helper()
	s := open(r.t, c.Client(), loadTTL)
	if _, err := s.Semaphore("pool", 2).Acquire(r.t.Context(), 1); err != nil {
		r.t.Fatal(err)
	}
	qlock(r.t, c, "resize", "pool", "3", "--reason", reason)
	if err := s.Close(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// round restores one of the backups while nodes are killed.
func (r *restores) round(round int) {
	r.t.Helper()
	b, reason := r.backups[round%len(r.backups)], fmt.Sprint("round ", round)
	before, started := r.alike(), time.Now()
	leader := r.c.Leader()
	asked, victims := leader, []string{leader}
	if r.random.IntN(3) == 0 {
		asked = r.c.Others(leader)[r.random.IntN(2)]
	}
	switch r.random.IntN(4) {
	case 0:
		victims = r.c.IDs()
	case 1:
		victims = []string{asked}
	}
	ended := make(chan answer, 1)
	go func() { ended <- r.ask(asked, asked == leader, b, r.id, reason) }()
	r.c.Pass(r.moment())
	r.c.Kill9(victims...)
	a := <-ended
	r.c.Restart(victims...)
	r.c.AwaitAll()
	after := r.alike()
	what := fmt.Sprintf("round %d, %s asked, %v killed, %v", round, asked, victims, a)
	r.t.Logf("%s: restored: %v", what, after.lineage != before.lineage)
	r.judge(what, a, b.since(started), reason, before, after)
	r.inUse()
	if a.outcome == unknown {
		r.again(b, reason+" again")
	}
}

// moment returns how long to wait before the kill. A restore waits for the end of the current second and then
// sends its command: half of the kills are at a random time before that, the others right after.
func (r *restores) moment() time.Duration {
	now := time.Now()
	left := now.Truncate(time.Second).Add(time.Second).Sub(now)
	if r.random.IntN(2) == 0 {
		return time.Duration(r.random.Int64N(int64(left)))
	}
	return left + time.Duration(r.random.Int64N(int64(6*time.Millisecond)))
}

// judge verifies that the state is one of the two, complete, and agrees with the answer.
func (r *restores) judge(what string, a answer, b backup, reason string, before, after standing) {
	r.t.Helper()
	restored := after.lineage != before.lineage
	switch a.outcome {
	case done:
		r.seen.done++
	case notDone:
		r.seen.notDone++
	case unknown:
		r.seen.unknown++
		if restored {
			r.seen.unknownNew++
		} else {
			r.seen.unknownOld++
		}
	}
	if a.outcome == done && !restored || a.outcome == notDone && restored {
		r.t.Errorf("%s: restored: %v", what, restored)
	}
	if !restored && after != before {
		r.t.Errorf("%s: it was %+v and is %+v", what, before, after)
	}
	if restored {
		r.wants(what, b, reason, before, after)
	}
}

// wants fails the test unless the state is that of a backup that has just been restored, with the earlier
// audit records.
func (r *restores) wants(what string, b backup, reason string, before, after standing) {
	r.t.Helper()
	if after.settings != b.settings || after.audit != before.audit+b.audit+restoreRecord(reason) || after.token < r.highest ||
		after.token < b.floor || r.known[after.lineage] {
		r.t.Errorf("%s: restored it is %+v; the backup was %+v, and token %d was granted", what, after, b, r.highest)
	}
	r.known[after.lineage] = true
}

// again restores without a kill, like a client that got no answer.
func (r *restores) again(b backup, reason string) {
	r.t.Helper()
	before := r.alike()
	b = b.since(time.Now())
	a := r.ask(r.c.Leader(), true, b, r.id, reason)
	if a.outcome != done || !strings.HasPrefix(a.text, "restored: every token is above ") {
		r.t.Errorf("%s: it said: %v", reason, a)
	}
	r.wants(reason, b, reason, before, r.alike())
	r.inUse()
}

// inUse uses the cluster after a restore: no token is granted twice, and all nodes have the same state.
func (r *restores) inUse() {
	r.t.Helper()
	since, highest := r.c.AwaitAll().GetCommitIndex(), r.highest
	if token := r.grants(r.c); token <= highest {
		r.t.Errorf("token %d after %d", token, highest)
	}
	for _, id := range r.c.IDs() {
		agrees(r.t, r.c, id, since)
	}
}

// refusedWhileInUse repeats a restore after a session was opened: it must change nothing, and be refused with
// a reason.
func (r *restores) refusedWhileInUse() {
	r.t.Helper()
	s := open(r.t, r.c.Client(), loadTTL)
	before := r.alike()
	a := r.ask(r.c.Leader(), true, r.backups[0], "", "in use")
	if a.outcome != notDone || !strings.Contains(a.text, "not restored: ") || !strings.Contains(a.text, "--replace "+r.id) {
		r.t.Errorf("with a session it said: %v", a)
	}
	if after := r.alike(); after != before {
		r.t.Errorf("it was %+v and is %+v", before, after)
	}
	if err := s.Close(r.t.Context()); err != nil {
		r.t.Error(err)
	}
}
