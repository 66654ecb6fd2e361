package directory

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// answeringAfter returns inquiries whose members give the answers in said, after the delays in after.
func answeringAfter(asked *atomic.Int32, said map[string]wire.Standing, after map[string]time.Duration) *inquiries {
	return newInquiries(func(ctx context.Context, member Peer, _ string, _ *wire.StandingRequest) wire.Standing {
		asked.Add(1)
		select {
		case <-time.After(after[member.ID]):
			return said[member.ID]
		case <-ctx.Done():
			return wire.Standing_UNKNOWN
		}
	})
}

var someMembers = map[Peer]string{{"n1", "h1:1"}: "i1", {"n2", "h2:1"}: "i2", {"n3", "h3:1"}: "i3"}

func TestMembersConfirm(t *testing.T) {
	const never = time.Hour
	for name, c := range map[string]struct {
		said  map[string]wire.Standing
		after map[string]time.Duration
		want  wire.Standing
		took  time.Duration
	}{
		"nobody knows it":                     {nil, nil, wire.Standing_UNKNOWN, 0},
		"one knows it":                        {map[string]wire.Standing{"n2": wire.Standing_MEMBER}, nil, wire.Standing_MEMBER, 0},
		"one knows it, the others are silent": {map[string]wire.Standing{"n2": wire.Standing_MEMBER}, map[string]time.Duration{"n1": never, "n3": never}, wire.Standing_MEMBER, removalTimeout},
		"one knows it, one of its removal":    {map[string]wire.Standing{"n2": wire.Standing_MEMBER, "n3": wire.Standing_REMOVED}, map[string]time.Duration{"n1": never, "n3": removalTimeout / 2}, wire.Standing_REMOVED, removalTimeout / 2},
		"all are silent":                      {nil, map[string]time.Duration{"n1": never, "n2": never, "n3": never}, wire.Standing_UNKNOWN, inquiryTimeout},
		"known as replaced or expected":       {map[string]wire.Standing{"n1": wire.Standing_REPLACED, "n2": wire.Standing_EXPECTED}, nil, wire.Standing_UNKNOWN, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var asked atomic.Int32
				v, started, who := answeringAfter(&asked, c.said, c.after), time.Now(), caller{"n9", "i9"}
				var calls sync.WaitGroup
				for range 20 {
					calls.Go(func() {
						if got := v.about(t.Context(), who, "h", someMembers); got != c.want {
							t.Errorf("got %v, want %v", got, c.want)
						}
					})
				}
				calls.Wait()
				if took := time.Since(started); took != c.took || asked.Load() != 3 || v.known(who) != c.want {
					t.Errorf("after %v, %d questions, now %v", took, asked.Load(), v.known(who))
				}
				again := func(when string, questions int32) {
					t.Helper()
					if got := v.about(t.Context(), who, "h", someMembers); got != c.want || asked.Load() != questions {
						t.Errorf("%s: %v, %d questions, want %d", when, got, asked.Load(), questions)
					}
				}
				time.Sleep(unknownFor - 1)
				again("within a second", 3)
				time.Sleep(time.Nanosecond)
				if c.want != wire.Standing_UNKNOWN {
					time.Sleep(knownFor - unknownFor - 1)
					again("within a minute", 3)
					time.Sleep(time.Nanosecond)
				}
				if v.known(who) != wire.Standing_UNKNOWN {
					t.Error("it is believed for ever")
				}
				again("out of date", 6)
			})
		})
	}
}

// TestStrangersAreAskedAboutSeldom verifies that strangers can neither keep the members busy, nor fill the
// memory, nor exclude a host that has asked for little.
func TestStrangersAreAskedAboutSeldom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		v := answeringAfter(&asked, map[string]wire.Standing{"n1": wire.Standing_MEMBER}, nil)
		for second := range 30 {
			for i := range 100 {
				v.about(t.Context(), caller{"n9", fmt.Sprint(second, i)}, "attacker", someMembers)
			}
			if got := v.about(t.Context(), caller{"n4", fmt.Sprint(second)}, "leader", someMembers); got != wire.Standing_MEMBER {
				t.Fatalf("second %d: the leader is %v", second, got)
			}
			time.Sleep(time.Second)
		}
		if n := int(asked.Load()); n != 30*3*(maxHostInquiries+1) {
			t.Errorf("%d questions in 30 s", n)
		}
		if n := len(v.answers); n > maxAnswers {
			t.Errorf("%d callers are remembered", n)
		}
	})
}

// TestNoMemberToAsk verifies that a question without members to ask neither counts towards the limits nor is
// cached.
func TestNoMemberToAsk(t *testing.T) {
	v := newInquiries(nil)
	if got := v.about(t.Context(), caller{"n9", "i9"}, "h", nil); got != wire.Standing_UNKNOWN || v.asked != 0 || len(v.answers) != 0 {
		t.Errorf("%v after %d questions, %d remembered", got, v.asked, len(v.answers))
	}
}

// TestCallersAreNotAskedAboutThemselves verifies that neither the node in question nor one with an unknown incarnation
// is asked.
func TestCallersAreNotAskedAboutThemselves(t *testing.T) {
	d, err := directoryOf(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Store(7, &wire.Membership{Members: []*wire.Member{
		{Id: "n1", Incarnation: "i1", PeerAddr: "h1:1"}, {Id: "n2", Incarnation: "i2", PeerAddr: "h2:1"},
		{Id: "n3", Incarnation: "i3", PeerAddr: "h3:1"}, {Id: "n4", PeerAddr: "h4:1"},
	}, Removed: []*wire.RemovedMember{{Id: "n2", Incarnation: "i0"}}}); err != nil {
		t.Fatal(err)
	}
	var asked []string
	d.inquiries = newInquiries(func(_ context.Context, member Peer, incarnation string, _ *wire.StandingRequest) wire.Standing {
		asked = append(asked, member.ID+incarnation)
		return wire.Standing_MEMBER
	})
	hello := &wire.PeerHello{Id: "n2", Incarnation: "i9"}
	if got := d.AskMembers(t.Context(), hello, "h"); got != wire.Standing_MEMBER || len(asked) != 1 || asked[0] != "n3i3" {
		t.Errorf("%v, by %v", got, asked)
	}
	for _, c := range []struct {
		id, incarnation string
		want            wire.Standing
	}{
		{"n2", "i2", wire.Standing_MEMBER}, {"n2", "i9", wire.Standing_MEMBER}, {"n3", "i9", wire.Standing_REPLACED},
		{"n4", "i4", wire.Standing_EXPECTED}, {"n2", "i0", wire.Standing_REMOVED}, {"n5", "i0", wire.Standing_REMOVED},
		{"n5", "i5", wire.Standing_UNKNOWN}, {"n5", "", wire.Standing_UNKNOWN}, {"n2", "", wire.Standing_UNKNOWN},
	} {
		if got := d.Standing(c.id, c.incarnation); got != c.want {
			t.Errorf("%s with %q is %v, want %v", c.id, c.incarnation, got, c.want)
		}
	}
}

// TestQuestionsAreBounded checks the limits of questions about callers from one host, from many hosts, and in
// the next second.
func TestQuestionsAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		v := newInquiries(nil)
		permitted := func(n int, host func(i int) string) (yes int) {
			for i := range n {
				if v.permit(host(i)) {
					yes++
				}
			}
			return yes
		}
		one := func(int) string { return "h" }
		if n := permitted(maxHostInquiries+3, one); n != maxHostInquiries {
			t.Errorf("one host: %d", n)
		}
		if n := permitted(maxInquiries, func(i int) string { return fmt.Sprint("h", i) }); n != maxInquiries-maxHostInquiries {
			t.Errorf("many hosts: %d", n)
		}
		time.Sleep(time.Second - 1)
		if v.permit("new") {
			t.Error("one more within the second")
		}
		time.Sleep(time.Nanosecond)
		if n := permitted(maxHostInquiries+3, one); n != maxHostInquiries {
			t.Errorf("in the next second: %d", n)
		}
	})
}

// TestAnswersMakeRoom verifies which answers are dropped: expired ones first, then the one that expires
// next, and never one that is still being asked about.
func TestAnswersMakeRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		v, now := newInquiries(nil), time.Now()
		add := func(id string, until time.Time) { v.answers[caller{id, ""}] = &answer{until: until} }
		has := func(id string) bool { return v.answers[caller{id, ""}] != nil }
		add("asked", time.Time{})
		add("over", now)
		add("next", now.Add(time.Second))
		v.evict()
		if has("over") || !has("next") || !has("asked") {
			t.Errorf("with room left: %v", v.answers)
		}
		for i := 0; len(v.answers) < maxAnswers; i++ {
			add(fmt.Sprint(i), now.Add(2*time.Second))
		}
		v.evict()
		if has("next") || !has("asked") || len(v.answers) != maxAnswers-1 {
			t.Errorf("without room: %d left, the next %v", len(v.answers), has("next"))
		}
		v.evict()
		if len(v.answers) != maxAnswers-1 {
			t.Error("evicted with room for one")
		}
	})
}
