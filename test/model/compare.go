package model

import (
	"bytes"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Compare returns an error if the answer and the events of the last command differ from the model's. want is
// the result of Apply. Messages for people are ignored. If there are several true deadlock cycles, the
// service chooses which one it reports; the model learns it, for repeated requests.
func (d *Model) Compare(cmd *wire.Command, want, got *wire.Result, events []*wire.Event) error {
	got = proto.CloneOf(got)
	message := got.Message
	got.Message = ""
	for _, o := range got.GetSession().GetOutcomes() {
		o.Message = ""
	}
	if want.Status == wire.Status_DEADLOCK && got.Status == wire.Status_DEADLOCK && want.Cycle == nil {
		if err := d.trap.trueCycle(got.Cycle); err != nil || !d.begins(cmd, got.Cycle[0]) {
			return fmt.Errorf("%v\nanswers %v\nwhich is no cycle: %v", cmd, got, err)
		}
		d.learn(cmd, got.Cycle)
		want.Cycle = got.Cycle
	}
	if !Same(got, want) {
		return fmt.Errorf("%v\nanswers   %v %q\nthe model %v", cmd, got, message, want)
	}
	if !slices.EqualFunc(events, d.News, func(a, b *wire.Event) bool { return Same(a, b) }) {
		return fmt.Errorf("%v\nevents    %v\nthe model %v", cmd, events, d.News)
	}
	return nil
}

// Turns returns the claims whose turn came according to the events, in order: those that were granted from queues, and
// those that were cancelled because the right to a lock had been withdrawn.
func Turns(events []*wire.Event) []uint64 {
	var ids []uint64
	for _, e := range events {
		if e.Type == wire.Event_GRANTED && e.Waited || e.Type == wire.Event_CANCELLED && e.Status == wire.Status_PERMISSION_DENIED {
			ids = append(ids, e.HoldId)
		}
	}
	return ids
}

// begins reports whether a step is the refused request or, for an upgrade, belongs to its owner.
func (d *Model) begins(cmd *wire.Command, step *wire.DeadlockStep) bool {
	c := d.trap.Claim(d.trap.refused)
	_, upgrade := cmd.Op.(*wire.Command_Upgrade)
	return step.WaitId == 0 || upgrade && c.by() == (owner{step.SessionId, step.Owner})
}

// learn stores the cycle that the service reported, since several may be true.
func (d *Model) learn(cmd *wire.Command, cycle []*wire.DeadlockStep) {
	if s := d.Session(cmd.SessionId); s != nil {
		if a := s.recall(cmd.Seq); a != nil {
			a.Said.Cycle = cycle
		}
	}
}

// Same compares messages by their encoding, which is far faster than by reflection. None of them contains a
// map.
func Same(a, b proto.Message) bool {
	one, err := proto.Marshal(a)
	if err != nil {
		return false
	}
	two, err := proto.Marshal(b)
	return err == nil && bytes.Equal(one, two)
}

// CompareDeadlocks checks a list of the current deadlocks: every reported cycle must be true and reported
// only once, and none may be missing. standing reports whether there is any deadlock.
func (d *Model) CompareDeadlocks(told []*wire.Deadlock) (standing bool, err error) {
	r := d.reduce(d.Claims)
	caught := r.deadlocked()
	seen := map[string]bool{}
	var covered []owner
	for _, one := range told {
		if err := r.trueCycle(one.Cycle); err != nil {
			return len(caught) > 0, fmt.Errorf("%v: %w", one, err)
		}
		var steps []string
		for _, s := range one.Cycle {
			steps = append(steps, fmt.Sprint(s.WaitId, " ", s.Lock))
			covered = append(covered, owner{s.SessionId, s.Owner})
		}
		slices.Sort(steps)
		if seen[fmt.Sprint(steps)] {
			return len(caught) > 0, fmt.Errorf("told twice: %v", one)
		}
		seen[fmt.Sprint(steps)] = true
	}
	for _, who := range caught {
		if !slices.ContainsFunc(covered, func(o owner) bool { return r.leads(o, r.waitsOf(who)...) && r.leads(who, r.waitsOf(o)...) }) {
			return true, fmt.Errorf("owner %v waits for itself; told: %v", who, told)
		}
	}
	return len(caught) > 0, nil
}
