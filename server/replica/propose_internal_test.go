package replica

import (
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestCommandsOfOneReadAreQueuedOrAnsweredOneByOne(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d, _ := openDeadlines(t, wire.Status_UNAVAILABLE)
		r := &Replica{deadlines: d, machine: fsm.NewReplicated(1, nil)}
		r.proposer = newProposer(nil, func() *wire.Result { return refused(wire.Status_NOT_LEADER, "") })
		d.observe(opened(1, time.Second))
		d.observe(opened(2, 2*time.Second))
		d.observe(opened(3, 10*time.Millisecond))
		time.Sleep(300 * time.Millisecond) // the third is decided

		var answers []wire.Status_Code
		var ends [5]time.Time
		propose := func() {
			answers, ends = nil, [5]time.Time{}
			var all []Proposal
			for i, session := range []uint64{1, 3, 2, 4, 1} {
				all = append(all, Proposal{
					Command: &wire.Command{SessionId: session},
					Until:   &ends[i],
					Done:    func(result *wire.Result) { answers = append(answers, result.Status) },
				})
			}
			all[4].Size = maxEntryBytes
			r.ProposeAll(all)
		}
		propose()
		if want := []wire.Status_Code{wire.Status_NOT_LEADER, wire.Status_SESSION_LOST, wire.Status_NOT_LEADER, wire.Status_NOT_LEADER, wire.Status_RESOURCE_EXHAUSTED}; !slices.Equal(answers, want) {
			t.Errorf("without a reign: %v, want %v", answers, want)
		}
		r.proposer.begin(7)
		r.proposer.serve(7, 1)
		propose()
		if want := []wire.Status_Code{wire.Status_SESSION_LOST, wire.Status_RESOURCE_EXHAUSTED}; !slices.Equal(answers, want) {
			t.Errorf("answered %v at once, want %v", answers, want)
		}
		var queued []uint64
		for _, it := range r.proposer.normal {
			queued = append(queued, it.cmd.SessionId)
		}
		if want := []uint64{1, 2, 4}; !slices.Equal(queued, want) {
			t.Errorf("queued for %v, want %v", queued, want)
		}
		now := time.Now()
		if want := [5]time.Time{now.Add(time.Second), {}, now.Add(2 * time.Second), {}, now.Add(time.Second)}; ends != want {
			t.Errorf("ends at %v, want %v", ends, want)
		}
	})
}
