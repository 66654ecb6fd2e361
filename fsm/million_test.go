package fsm

import (
	"io"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// longerBeside is by how much the longest apply may be longer while a snapshot is written.
const longerBeside = 20 * time.Millisecond

// TestApplyBesideASnapshotOfAMillionLocks compares the longest apply while a snapshot of a million held
// locks is written to a disk with the longest in as much time without a snapshot. Other programs can only
// make it longer, so the quietest round of each counts.
//
//	QUORUMLOCK_CHECK=1 go test ./fsm -run '^TestApplyBesideASnapshotOfAMillionLocks$' -v
func TestApplyBesideASnapshotOfAMillionLocks(t *testing.T) {
	if !full {
		t.Skip("the long version has this, with QUORUMLOCK_CHECK=1")
	}
	const held = 1_000_000
	p := newPairing(t, held)
	var alone, beside []time.Duration
	for range 5 {
		written := make(chan time.Duration, 1)
		image, err := p.replicated.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		go func() { written <- persist(t, image) }()
		longest, applied := p.run(func() bool { return len(written) > 0 })
		took := <-written
		beside = append(beside, longest)
		t.Logf("a snapshot of %d held locks took %v; of %d applies meanwhile the longest took %v", held, took.Round(time.Millisecond), applied, longest)

		end := time.Now().Add(took)
		longest, applied = p.run(func() bool { return time.Now().After(end) })
		alone = append(alone, longest)
		t.Logf("without one, of %d applies the longest took %v", applied, longest)
	}
	t.Logf("longest apply: %v beside a snapshot, %v without", slices.Min(beside), slices.Min(alone))
	if slices.Min(beside) > slices.Min(alone)+longerBeside {
		t.Errorf("%v longer beside a snapshot, at most %v are meant", slices.Min(beside)-slices.Min(alone), longerBeside)
	}
}

// persist writes a snapshot as a node does, and returns how long that took.
func persist(t *testing.T, image raft.FSMSnapshot) time.Duration {
	defer image.Release()
	started := time.Now()
	store, err := raft.NewFileSnapshotStoreWithLogger(t.TempDir(), 1, hclog.NewNullLogger())
	if err == nil {
		var sink raft.SnapshotSink
		if sink, err = store.Create(raft.SnapshotVersionMax, 1, 1, raft.Configuration{}, 1, nil); err == nil {
			err = image.Persist(sink)
		}
	}
	if err != nil {
		t.Error(err)
	}
	return time.Since(started)
}

// pairing is a session that acquires and releases, each time another lock, while others hold theirs.
type pairing struct {
	t          *testing.T
	replicated *Replicated
	session    uint64
	seq        uint64
}

func newPairing(t *testing.T, held int) *pairing {
	m := spacious(t)
	acquireEach(t, m, held, scattered)
	r := NewReplicated(Level, func(err error) { t.Error(err) })
	r.machine = m
	return &pairing{t: t, replicated: r, session: openSession(t, m, "pairs")}
}

// run acquires and releases until done, and returns the longest apply.
func (p *pairing) run(done func() bool) (longest time.Duration, applied int) {
	for ; !done(); applied += 2 {
		name := scattered(1<<20 + int(p.seq))
		granted := p.apply(&longest, &wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: name}}, WaitForever: true,
		}}})
		p.apply(&longest, &wire.Command{Op: &wire.Command_Release{Release: &wire.Release{HoldId: granted.HoldId, Token: granted.Token}}})
	}
	return longest, applied
}

func (p *pairing) apply(longest *time.Duration, cmd *wire.Command) *wire.Result {
	p.seq++
	cmd.SessionId, cmd.Seq, cmd.AckedBelow = p.session, p.seq, p.seq
	log := &raft.Log{Index: p.seq, Data: entry(p.t, cmd)}
	started := time.Now()
	applied, ok := p.replicated.Apply(log).(*Applied)
	*longest = max(*longest, time.Since(started))
	if !ok || applied.Results[0].Status != wire.Status_GRANTED && applied.Results[0].Status != wire.Status_OK {
		p.t.Fatal(applied)
	}
	return applied.Results[0]
}

// impatient is a snapshot sink whose writes block until another entry has been applied.
type impatient struct {
	sink
	apply func()
}

func (i *impatient) Write(p []byte) (int, error) {
	i.apply()
	return i.sink.Write(p)
}

// TestApplyWaitsForNoSnapshot checks that entries are applied while the disk blocks a snapshot.
func TestApplyWaitsForNoSnapshot(t *testing.T) {
	p := newPairing(t, 2_000)
	image, err := p.replicated.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	out := &impatient{apply: func() {
		before := p.seq
		p.run(func() bool { return p.seq > before })
	}}
	if err := image.Persist(out); err != nil || p.seq == 0 {
		t.Fatalf("%v, %d entries applied meanwhile", err, p.seq)
	}
	restored := NewReplicated(Level, nil)
	if err := restored.Restore(io.NopCloser(&out.Buffer)); err != nil {
		t.Fatal(err)
	}
	if got := restored.machine.Totals().Holds; got != 2_000 {
		t.Errorf("the snapshot has %d holds", got)
	}
}
