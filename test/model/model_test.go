package model

import (
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// driver sends commands to a model as a cluster would.
type driver struct {
	t    testing.TB
	d    *Model
	seqs map[uint64]uint64
}

func bootstrapped(t testing.TB) *driver {
	t.Helper()
	x := &driver{t: t, d: New(), seqs: map[uint64]uint64{}}
	x.apply(&wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: 2, LeaderId: "n1"}}})
	x.must(wire.Status_OK, x.apply(&wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c", TokenFloor: 100, Lineage: "l"}}}))
	return x
}

func (x *driver) apply(cmd *wire.Command) *wire.Result { return x.d.Apply(cmd, int64(x.d.Revision)) }

func (x *driver) must(want wire.Status_Code, got *wire.Result) *wire.Result {
	x.t.Helper()
	if got.Status != want {
		x.t.Fatalf("%v, want %v", got, want)
	}
	return got
}

func (x *driver) open(i int) uint64 {
	x.t.Helper()
	hash := fmt.Appendf(nil, "%032d", i)
	return x.must(wire.Status_OK, x.apply(&wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: hash}}})).Session.SessionId
}

// request sends the session's next request and acknowledges all earlier ones.
func (x *driver) request(session uint64, cmd *wire.Command) *wire.Result {
	x.seqs[session]++
	cmd.SessionId, cmd.Seq, cmd.AckedBelow = session, x.seqs[session], x.seqs[session]
	return x.apply(cmd)
}

func (x *driver) acquire(session, owner uint64, names ...string) *wire.Result {
	op := &wire.Acquire{WaitForever: true, Owner: owner}
	for _, name := range names {
		op.Locks = append(op.Locks, &wire.LockRequest{Name: name})
	}
	return x.request(session, &wire.Command{Op: &wire.Command_Acquire{Acquire: op}})
}

func (x *driver) release(c *Claim) *wire.Result {
	return x.request(c.Session, &wire.Command{Op: &wire.Command_Release{Release: &wire.Release{HoldId: c.ID, Token: c.Token}}})
}

// TestCompareReportsDifferences verifies that Compare considers every part of an answer and of the events.
func TestCompareReportsDifferences(t *testing.T) {
	x := bootstrapped(t)
	s := x.open(1)
	cmd := &wire.Command{SessionId: s, Seq: 1, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a"}}}}}
	want := x.apply(cmd)
	truth := func() (*wire.Result, []*wire.Event) {
		return &wire.Result{Status: wire.Status_GRANTED, Message: "for people", Seq: 1, Revision: 4, HoldId: 4, Token: 101, Count: 1, Digest: cmd.Digest(), Name: "a"},
			[]*wire.Event{{Type: wire.Event_GRANTED, Revision: 4, Lock: "a", SessionId: s, Seq: 1, HoldId: 4, Token: 101, Mode: wire.Mode_EXCLUSIVE}}
	}
	got, events := truth()
	if err := x.d.Compare(cmd, want, got, events); err != nil {
		t.Fatal(err)
	}
	for i, lie := range []func(*wire.Result, []*wire.Event) []*wire.Event{
		func(r *wire.Result, e []*wire.Event) []*wire.Event { r.Token++; return e },
		func(r *wire.Result, e []*wire.Event) []*wire.Event { r.Revision--; return e },
		func(r *wire.Result, e []*wire.Event) []*wire.Event { r.Digest++; return e },
		func(r *wire.Result, e []*wire.Event) []*wire.Event { r.Name = "b"; return e },
		func(r *wire.Result, e []*wire.Event) []*wire.Event { r.Status = wire.Status_QUEUED; return e },
		func(r *wire.Result, e []*wire.Event) []*wire.Event { e[0].Waited = true; return e },
		func(r *wire.Result, e []*wire.Event) []*wire.Event { return nil },
		func(r *wire.Result, e []*wire.Event) []*wire.Event { return append(e, e[0]) },
	} {
		got, events := truth()
		if x.d.Compare(cmd, want, got, lie(got, events)) == nil {
			t.Errorf("lie %d was believed", i)
		}
	}
}

// difficult is a log as that of a long run: many sessions, a contended lock with a queue of hundreds, uncontended locks,
// multi-lock claims, and sessions that hold and wait, so that deadlock detection runs. It returns the number of deadlocks.
func (x *driver) difficult(commands uint64) (deadlocks int) {
	const sessions = 300
	var all []uint64
	for i := range sessions {
		all = append(all, x.open(i))
	}
	for i := 0; x.d.Revision < commands; i++ {
		s := all[i*7%sessions]
		switch i % 4 {
		case 0:
			x.acquire(s, uint64(i), "hot")
			if holders := x.d.holders("hot"); len(x.d.byLock["hot"]) > 200 {
				x.must(wire.Status_OK, x.release(holders[0]))
			}
		case 1:
			name := fmt.Sprint("lone/", i)
			x.must(wire.Status_GRANTED, x.acquire(s, uint64(i), name))
			x.must(wire.Status_OK, x.release(x.d.holders(name)[0]))
		case 2:
			x.acquire(s, uint64(i), fmt.Sprint("many/", i%11), fmt.Sprint("many/", i%7), "many/last")
			if holders := x.d.holders("many/last"); len(holders) > 0 {
				x.must(wire.Status_OK, x.release(holders[0]))
			}
		case 3:
			round, who := i/24, i/4%6
			if x.acquire(all[who], 0, fmt.Sprint("nested/", (round+who)%6)).Status == wire.Status_DEADLOCK {
				deadlocks++
			}
			if holders := x.d.holders(fmt.Sprint("nested/", round%6)); who == 5 && len(holders) > 0 {
				x.must(wire.Status_OK, x.release(holders[0]))
			}
		}
	}
	return deadlocks
}

// TestDifficultLog verifies that the log of the benchmark is as difficult as it should be.
func TestDifficultLog(t *testing.T) {
	x := bootstrapped(t)
	deadlocks := x.difficult(5_000)
	if deadlocks < 50 || len(x.d.byLock["hot"]) < 200 {
		t.Errorf("%d deadlocks, %d in the hot queue: the log is too easy", deadlocks, len(x.d.byLock["hot"]))
	}
}

// BenchmarkDifficultLog shows the time of a command in logs of different lengths: it must not grow in proportion to them.
func BenchmarkDifficultLog(b *testing.B) {
	for _, commands := range []uint64{5_000, 50_000} {
		b.Run(fmt.Sprint(commands), func(b *testing.B) {
			for b.Loop() {
				bootstrapped(b).difficult(commands)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(commands), "ns/command")
		})
	}
}
