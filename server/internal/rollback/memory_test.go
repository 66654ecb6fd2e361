package rollback

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func says(boot, nonce uint64) *wire.PeerState {
	return &wire.PeerState{Stored: &wire.StoredState{Boot: boot, Nonce: nonce}}
}

// TestEvidenceOfEarlierStartsIsKeptApart restarts a node: the evidence from before is still compared with
// what the start finds.
func TestEvidenceOfEarlierStartsIsKeptApart(t *testing.T) {
	m := Load(nil)
	m.Learn("i", 1, 1, 1, 1)
	if m.Known("i") != nil {
		t.Error("a node that was never met is known")
	}
	m.RecordStart("i", says(4, 104))
	m.Learn("i", 7, 6, 50, 40)
	m.Learn("i", 6, 5, 30, 60)
	m.RecordStart("i", says(4, 999)) // from another copy: the first one counts
	m.RecordStart("i", says(3, 103))
	want := &wire.KnownState{Incarnation: "i", Before: &wire.DiskEvidence{},
		LastStart: &wire.DiskEvidence{Boot: 4, Nonce: 104, Term: 7, VoteTerm: 6, CommittedIndex: 40}}
	if known := m.Known("i"); !proto.Equal(known, want) {
		t.Errorf("known %v", known)
	}
	m.RecordStart("i", says(5, 105))
	m.Learn("i", 8, 0, 0, 0)
	m.RecordStart("i", says(6, 106))
	want = &wire.KnownState{Incarnation: "i",
		Before:    &wire.DiskEvidence{Boot: 5, Nonce: 105, Term: 8, VoteTerm: 6, CommittedIndex: 40},
		LastStart: &wire.DiskEvidence{Boot: 6, Nonce: 106}}
	if known := m.Known("i"); !proto.Equal(known, want) {
		t.Errorf("then known %v", known)
	}
	if m.Committed() != 60 {
		t.Errorf("%d is committed", m.Committed())
	}
}

// TestMemoryIsKept verifies that Keep returns what is known of members, and Changed reports changes only.
func TestMemoryIsKept(t *testing.T) {
	m := Load(nil)
	if m.Changed() {
		t.Error("there is something to keep at the beginning")
	}
	for _, incarnation := range []string{"b", "a", "stranger"} {
		m.RecordStart(incarnation, says(1, 1))
		m.Learn(incarnation, 2, 0, 9, 9)
	}
	position := &wire.LogPosition{Revision: 30, TermStarts: []*wire.TermStart{{Term: 2, Revision: 1}}}
	kept := m.Keep([]string{"a", "b"}, position)
	if len(kept.Peers) != 2 || kept.Peers[0].Incarnation != "a" || kept.CommittedIndex != 9 || !proto.Equal(kept.Position, position) {
		t.Errorf("kept %v", kept)
	}
	if m.Changed() {
		t.Error("it is kept, and there is something to keep")
	}
	m.Learn("a", 2, 0, 8, 8)
	if m.Changed() {
		t.Error("nothing was raised, and there is something to keep")
	}
	if m.RecordStart("a", says(1, 1)); m.Changed() {
		t.Error("it was met again, and there is something to keep")
	}
	if m.RecordStart("a", says(2, 2)); !m.Changed() {
		t.Error("it has started again, and there is nothing to keep")
	}
	m.Keep([]string{"a", "b"}, position)
	if m.Learn("a", 3, 0, 0, 0); !m.Changed() {
		t.Error("a term was raised, and there is nothing to keep")
	}
	again := Load(kept)
	if known := again.Known("a"); known.GetLastStart().GetTerm() != 2 || again.Committed() != 9 || again.Known("stranger") != nil {
		t.Errorf("loaded %v, committed %d", known, again.Committed())
	}
	early := &wire.LogPosition{Revision: 4}
	if p := again.Position(early); p.Revision != 30 {
		t.Errorf("a node that has yet to apply its log says it is at %v", p)
	}
	if p := again.Position(&wire.LogPosition{Revision: 31}); p.Revision != 31 {
		t.Errorf("a node that has applied more says it is at %v", p)
	}
}

// TestMemoryIsBounded meets more nodes than there are members.
func TestMemoryIsBounded(t *testing.T) {
	m := Load(nil)
	stranger := func(i int) string { return fmt.Sprint("stranger ", i) }
	known := func() (n int) {
		for i := range maxPeers + 9 {
			if m.Known(stranger(i)) != nil {
				n++
			}
		}
		return n
	}
	for i := range maxPeers - 1 {
		m.RecordStart(stranger(i), says(1, 1))
	}
	m.RecordStart("member", says(1, 1))
	if m.Keep([]string{"member"}, nil); known() != maxPeers-1 {
		t.Errorf("%d are known of those who are no members yet", known())
	}
	for i := range maxPeers + 9 {
		m.RecordStart(stranger(i), says(1, 1))
	}
	if m.Keep([]string{"member"}, nil); m.Known("member") == nil || known() != maxPeers-1 {
		t.Errorf("%d strangers are known, and the member: %v", known(), m.Known("member"))
	}
}

// TestLoadedWithoutEvidence loads the record of a node that an earlier start only met.
func TestLoadedWithoutEvidence(t *testing.T) {
	m := Load(&wire.PeerMemory{Peers: []*wire.KnownState{{Incarnation: "a"}, {Incarnation: "b"}}})
	if m.Learn("a", 3, 2, 0, 0); m.Known("a").GetLastStart().GetTerm() != 3 || m.Known("a").GetBefore() == nil {
		t.Errorf("known %v", m.Known("a"))
	}
	if got := m.Median(1_000, []string{"a", "b"}); got != 1_000 {
		t.Errorf("the median %d counts the clock of a node that was not met since the start", got)
	}
}

func TestMedian(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := Load(nil)
		for incarnation, clock := range map[string]uint64{"a": 1_000, "b": 2_000, "wild": 9_000_000, "no voter": 1} {
			m.RecordStart(incarnation, &wire.PeerState{ClockUnixMs: clock})
		}
		time.Sleep(10 * time.Millisecond)
		for _, c := range []struct {
			own    uint64
			others []string
			want   uint64
		}{
			{1_500, nil, 1_500},
			{1_500, []string{"a"}, 1_010}, // the lower one of two
			{1_500, []string{"a", "b"}, 1_500},
			{1_500, []string{"b", "wild"}, 2_010},
			{1_500, []string{"a", "b", "wild", "never met"}, 1_500},
		} {
			if got := m.Median(c.own, c.others); got != c.want {
				t.Errorf("of %d and %v: %d, want %d", c.own, c.others, got, c.want)
			}
		}
	})
}
