package expiry

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// leader is a state machine and its deadlines in one term after the other.
type leader struct {
	t *testing.T
	*Deadlines
	running sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	machine *fsm.Machine
	term    uint64
	seq     uint64
	batches []int // the sizes of the records
}

func newLeader(t *testing.T) *leader {
	l := &leader{t: t, machine: fsm.New(fsm.Level)}
	l.apply(&wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{
		ClusterId: "c", Settings: fsm.DefaultSettings(), Members: []*wire.Member{{Id: "n1"}},
	}}})
	return l
}

func (l *leader) apply(cmd *wire.Command) *wire.Result {
	l.t.Helper()
	entry, err := proto.Marshal(&wire.Entry{Level: fsm.Level, Commands: []*wire.Command{cmd}})
	if err != nil {
		l.t.Fatal(err)
	}
	l.mu.Lock()
	applied, err := l.machine.Apply(entry)
	l.mu.Unlock()
	if err != nil {
		l.t.Fatal(err)
	}
	if l.Deadlines != nil {
		l.Observe(applied.Events)
	}
	return applied.Results[0]
}

func (l *leader) propose(_ uint64, cmd *wire.Command, answered func(*wire.Result)) bool {
	if op := cmd.GetRecordRemaining(); op != nil {
		l.mu.Lock()
		l.batches = append(l.batches, len(op.GetKeys()))
		l.mu.Unlock()
	}
	answered(l.apply(cmd))
	return true
}

// elect begins another leadership.
func (l *leader) elect() {
	l.stop()
	l.term++
	l.apply(&wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: l.term, LeaderId: "n1"}}})
	l.Deadlines = New(l.propose)
	l.Start(l.term, l.machine)
	l.running.Go(l.Run)
}

func (l *leader) stop() {
	if l.Deadlines != nil {
		l.Close()
		l.running.Wait()
		l.Deadlines = nil
	}
}

func (l *leader) change(action wire.ChangeKeys_Action, name string, ttl time.Duration) {
	l.t.Helper()
	l.seq++
	res := l.apply(&wire.Command{Caller: &wire.Caller{Identity: "ann"}, Op: &wire.Command_ChangeKeys{ChangeKeys: &wire.ChangeKeys{
		Action: action, Names: []string{name}, Value: []byte("v"), TtlMs: uint32(ttl.Milliseconds()), NodeId: "n1", Boot: 1, Seq: l.seq, AckedBelow: l.seq,
	}}})
	if s := res.GetStatus(); s != wire.Status_GRANTED && s != wire.Status_OK {
		l.t.Fatalf("%v of %s: %v", action, name, res)
	}
}

func (l *leader) held(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, exists := l.machine.Key(name)
	return exists
}

// recorded returns how many keys each record had.
func (l *leader) recorded() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprint(l.batches)
}

// endsAfter returns when a key ends, counted from begin.
func (l *leader) endsAfter(begin time.Time, name string) time.Duration {
	for l.held(name) {
		time.Sleep(time.Second)
	}
	return time.Since(begin)
}

// TestElectionsDoNotRenewKeys verifies that a key whose leaders change ends after its TTL, and at most a minute later per
// leader.
func TestElectionsDoNotRenewKeys(t *testing.T) {
	for _, between := range []time.Duration{50 * time.Second, 61 * time.Second, 90 * time.Second, 10 * time.Minute} {
		bubble.Test(t, func(t *testing.T) {
			l := newLeader(t)
			defer l.stop()
			l.elect()
			begin := time.Now()
			const ttl, elections = time.Hour, 10
			l.change(wire.ChangeKeys_ACQUIRE, "k", ttl)
			for range elections {
				time.Sleep(between)
				if !l.held("k") {
					break
				}
				l.elect()
			}
			if took := l.endsAfter(begin, "k"); took < ttl || took > ttl+elections*(RecordInterval+time.Second) {
				t.Errorf("with an election each %v it ends after %v", between, took)
			}
		})
	}
}

// TestExtendedKeysStartAgain verifies that what was recorded before an extension does not count after it, and that
// nothing is recorded of TTLs up to a minute, of sessions, and of leases.
func TestExtendedKeysStartAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := newLeader(t)
		defer l.stop()
		l.elect()
		l.change(wire.ChangeKeys_ACQUIRE, "short", RecordInterval)
		l.change(wire.ChangeKeys_ACQUIRE, "k", 5*time.Minute)
		l.apply(&wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: make([]byte, 32), TtlMs: 60_000}}})
		time.Sleep(4*time.Minute + time.Second)
		if text := l.recorded(); text != "[1 1 1 1]" {
			t.Errorf("recorded %v", text)
		}
		extended := time.Now()
		l.change(wire.ChangeKeys_EXTEND, "k", 5*time.Minute)
		time.Sleep(10 * time.Second)
		l.elect()
		if took := l.endsAfter(extended, "k"); took < 5*time.Minute || took > 5*time.Minute+12*time.Second {
			t.Errorf("it ends %v after its extension", took)
		}
	})
}

// TestRecordsOfManyKeys verifies that one command records a bounded number of keys.
func TestRecordsOfManyKeys(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := newLeader(t)
		defer l.stop()
		l.elect()
		for i := range maxRecords + 1 {
			l.change(wire.ChangeKeys_ACQUIRE, fmt.Sprint(i), time.Hour)
		}
		time.Sleep(RecordInterval + time.Second)
		if text := l.recorded(); text != "[1024 1]" {
			t.Errorf("recorded %v", text)
		}
		l.change(wire.ChangeKeys_RELEASE, "7", 0)
		time.Sleep(RecordInterval)
		if text := l.recorded(); text != "[1024 1 1024]" {
			t.Errorf("recorded %v", text)
		}
	})
}

// TestRemainingIsRoundedUp verifies that a record is never less than what remains.
func TestRemainingIsRoundedUp(t *testing.T) {
	now := time.Now()
	for left, want := range map[time.Duration]uint32{time.Nanosecond: 1, time.Millisecond: 1, time.Millisecond + 1: 2, time.Hour: 3_600_000} {
		e := &deadline{ttl: 2 * time.Hour, last: now.Add(left - 2*time.Hour)}
		if got := e.remaining(now).GetRemainingMs(); got != want {
			t.Errorf("of %v, %d ms are recorded, want %d", left, got, want)
		}
	}
}

// TestStallExtendsOnlyKeysThatAreDue verifies that a key which was only due for its record is still extended when
// it is due after a stall.
func TestStallExtendsOnlyKeysThatAreDue(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newDeadlines(func(uint64, ending, func(*wire.Result)) bool {
			t.Error("ended before its owner could be heard")
			return true
		})
		d.record = func(uint64, []*wire.RecordRemaining_Remaining) {}
		d.Start(7, fsm.New(1))
		key := opened(1, 2*time.Minute)
		key[0].Leased, key[0].ByValue = true, true
		d.Observe(key)
		for range 2 {
			time.Sleep(RecordInterval + time.Second) // always late
			d.extendAfterStall(time.Now())
			d.Decide(time.Now())
		}
	})
}
