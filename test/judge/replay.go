package judge

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/test/model"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// request identifies a request of a session.
type request struct{ session, seq uint64 }

// step is one command of the log with its results.
type step struct {
	revision uint64        // the last one: an acquire of several keys takes one for each
	at       time.Duration // the leader's timestamp, on the history's clock
	cmd      *wire.Command
	said     *wire.Result // the model's answer
	events   []*wire.Event
	request  nodeRequest // of a change of keys
}

// replay is the log as replayed by the state machine and the model.
type replay struct {
	in      Input
	machine *fsm.Machine
	model   *model.Model
	rules   *rules
	faults  []string

	first uint64 // revision of steps[0]
	steps []step
	// opened is the last session opened before the first step, live are those that were alive then.
	opened uint64
	live   map[uint64]bool
	// entries are the revisions at which an entry ended.
	entries map[uint64]bool
	// executed is the revision of a request's first command. asked contains the answer to each of its
	// commands, came the outcomes of its wait.
	executed map[request]uint64
	asked    map[request][]*wire.Result
	came     map[request][]*wire.Result
	// leases are the answers to leases, by the hash of their secret.
	leases map[string][]*wire.Result
	// owners are the requests that opened keys' sessions, by session.
	owners map[uint64]keyID
	// removals counts how often a node was removed.
	removals map[string]int
	// reads are the clients' reads, by the revision that they saw.
	reads    map[uint64][]*history.Op
	repeated int
	restarts []news    // see beginnings
	windows  int       // checked by porcupine
	keys     *keyMatch // see matchKeys
	cached   cacheUses // see caches
}

func newReplay(in Input) *replay {
	r := &replay{
		in: in, machine: fsm.New(cmp.Or(in.Level, fsm.Level)), model: model.New(), rules: newRules(), first: 1, entries: map[uint64]bool{},
		executed: map[request]uint64{}, asked: map[request][]*wire.Result{}, came: map[request][]*wire.Result{},
		leases: map[string][]*wire.Result{}, owners: map[uint64]keyID{}, removals: map[string]int{}, reads: readsOf(in.History),
	}
	if in.Snapshot != nil {
		r.begin(in.Snapshot)
	}
	return r
}

// begin loads the state before the first entry from a snapshot.
func (r *replay) begin(snapshot []byte) {
	machine, err := fsm.Restore(bytes.NewReader(snapshot), cmp.Or(r.in.Level, fsm.Level))
	if err != nil {
		r.fault("the snapshot before the log: %v", err)
		return
	}
	state, err := model.Load(bytes.NewReader(snapshot))
	if err != nil {
		r.fault("the snapshot before the log: %v", err)
		return
	}
	r.machine, r.model, r.first = machine, state, state.Revision+1
	r.opened, r.live = state.Opened, map[uint64]bool{}
	for _, s := range state.Live {
		r.live[s.ID] = true
	}
	r.rules.load(state)
}

// before reports whether a session ended before the first step.
func (r *replay) before(session uint64) bool { return session <= r.opened && !r.live[session] }

func (r *replay) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// at returns the step with that revision; nil if the log has none.
func (r *replay) at(revision uint64) *step {
	i, _ := slices.BinarySearchFunc(r.steps, revision, func(s step, revision uint64) int { return cmp.Compare(s.revision, revision) })
	if revision < r.first || i == len(r.steps) {
		return nil
	}
	return &r.steps[i]
}

// run replays every entry, until the two replays differ: after that the model is no longer a valid reference.
func (r *replay) run() {
	for _, e := range r.in.Entries {
		if err := r.entry(e); err != nil {
			r.fault("entry %d: %v", e.Index, err)
			return
		}
	}
	if err := r.machine.Check(); err != nil {
		r.fault("the replayed state: %v", err)
	}
	if _, err := r.model.CompareDeadlocks(r.machine.ListDeadlocks(&wire.ListDeadlocksRequest{}).Deadlocks); err != nil {
		r.fault("the deadlocks at the end: %v", err)
	}
	r.faults = append(r.faults, most(r.rules.faults)...)
	for _, revision := range slices.Sorted(maps.Keys(r.reads)) {
		if op := r.reads[revision][0]; revision >= r.first && !r.entries[revision] {
			r.fault("%s at %v read revision %d, which is that of no entry", op.Client, op.Call, revision)
		}
	}
}

// counted returns how many acquires a hold counts.
func (r *replay) counted(id uint64) uint32 {
	if c := r.model.Claim(id); c != nil {
		return c.Count
	}
	return 0
}

func (r *replay) entry(e Entry) error {
	entry := &wire.Entry{}
	if err := proto.Unmarshal(e.Data, entry); err != nil {
		return err
	}
	applied, err := r.machine.Apply(e.Data)
	if err != nil {
		return err
	}
	at := time.UnixMilli(entry.WallUnixMs).Sub(r.in.History.Begin)
	for i, cmd := range entry.Commands {
		if err := r.command(at, entry.WallUnixMs, cmd, applied.Results[i], applied.Events); err != nil {
			return err
		}
	}
	if len(applied.Failures) > 0 {
		return fmt.Errorf("a handler failed: %+v", applied.Failures)
	}
	r.entries[r.model.Revision] = true
	for _, op := range r.reads[r.model.Revision] {
		if err := compareRead(r.model, op); err != nil {
			r.fault("%s at %v: %v", op.Client, op.Call, err)
		}
	}
	return nil
}

// command replays one command. got and all are the machine's answer, and the events of the whole entry.
func (r *replay) command(at time.Duration, wall int64, cmd *wire.Command, got *wire.Result, all []*wire.Event) error {
	before := r.model.Revision
	r.model.Heard = got
	want := r.model.Apply(cmd, wall, model.Turns(between(all, before, before+1))...)
	events := between(all, before, r.model.Revision)
	if err := r.model.Compare(cmd, want, got, events); err != nil {
		return err
	}
	s := step{revision: r.model.Revision, at: at, cmd: cmd, said: want, events: events, request: r.nodeRequestOf(cmd, want)}
	r.steps = append(r.steps, s)
	r.remember(s)
	r.own(s)
	r.rules.step(s)
	return nil
}

// between returns the events after one revision and up to another.
func between(all []*wire.Event, after, last uint64) (events []*wire.Event) {
	for _, e := range all {
		if e.Revision > after && e.Revision <= last {
			events = append(events, e)
		}
	}
	return events
}

// remember stores what clients may receive about a step.
func (r *replay) remember(s step) {
	if key := (request{s.cmd.SessionId, s.cmd.Seq}); key.seq != 0 {
		if _, known := r.executed[key]; known {
			r.repeated++
		} else {
			r.executed[key] = s.revision
		}
		r.asked[key] = append(r.asked[key], s.said)
	}
	if op := s.cmd.GetOpenLease(); op != nil {
		r.leases[string(op.SecretHash)] = append(r.leases[string(op.SecretHash)], s.said)
	}
	for _, e := range s.events {
		key := request{e.SessionId, e.Seq}
		switch e.Type {
		case wire.Event_GRANTED:
			if e.Waited {
				r.came[key] = append(r.came[key], &wire.Result{
					Status: wire.Status_GRANTED, Revision: s.revision, HoldId: e.HoldId, Token: e.Token, Count: max(1, r.counted(e.HoldId)),
					Digest: e.Digest, Name: e.Lock,
				})
			}
		case wire.Event_CANCELLED:
			r.came[key] = append(r.came[key], &wire.Result{
				Status: e.Status, Revision: s.revision, HoldId: e.HoldId, Digest: e.Digest, Name: e.Lock,
			})
		}
	}
}
