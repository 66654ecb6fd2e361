package replica

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestQuestionsAreBounded checks the limits of questions about callers from one host, from many hosts, and in
// the next second.
func TestQuestionsAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		v := newVouchers(nil)
		permitted := func(n int, host func(i int) string) (yes int) {
			for i := range n {
				if v.permit(host(i)) {
					yes++
				}
			}
			return yes
		}
		one := func(int) string { return "h" }
		if n := permitted(maxHostQuestions+3, one); n != maxHostQuestions {
			t.Errorf("one host: %d", n)
		}
		if n := permitted(maxQuestions, func(i int) string { return fmt.Sprint("h", i) }); n != maxQuestions-maxHostQuestions {
			t.Errorf("many hosts: %d", n)
		}
		time.Sleep(time.Second - 1)
		if v.permit("new") {
			t.Error("one more within the second")
		}
		time.Sleep(time.Nanosecond)
		if n := permitted(maxHostQuestions+3, one); n != maxHostQuestions {
			t.Errorf("in the next second: %d", n)
		}
	})
}

// TestVerdictsMakeRoom verifies which verdicts are dropped: expired ones first, then the one that expires
// next, and never one that is still being asked about.
func TestVerdictsMakeRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		v, now := newVouchers(nil), time.Now()
		add := func(id string, until time.Time) { v.verdicts[callerKey{id, ""}] = &verdict{until: until} }
		has := func(id string) bool { return v.verdicts[callerKey{id, ""}] != nil }
		add("asked", time.Time{})
		add("over", now)
		add("next", now.Add(time.Second))
		v.evict()
		if has("over") || !has("next") || !has("asked") {
			t.Errorf("with room left: %v", v.verdicts)
		}
		for i := 0; len(v.verdicts) < maxVerdicts; i++ {
			add(fmt.Sprint(i), now.Add(2*time.Second))
		}
		v.evict()
		if has("next") || !has("asked") || len(v.verdicts) != maxVerdicts-1 {
			t.Errorf("without room: %d left, the next %v", len(v.verdicts), has("next"))
		}
		v.evict()
		if len(v.verdicts) != maxVerdicts-1 {
			t.Error("evicted with room for one")
		}
	})
}

// TestLogAfter verifies that logAfter yields the entries after an index until it is stopped or fails.
func TestLogAfter(t *testing.T) {
	logs := raft.NewInmemStore()
	if err := logs.StoreLogs(entriesOf(1, 5)); err != nil {
		t.Fatal(err)
	}
	r := &Replica{stores: &storage.Stores{Log: logs}}
	read := func(after uint64, most int) (indexes []uint64, failed error) {
		for e, err := range r.logAfter(after) {
			if err != nil {
				return indexes, err
			}
			if indexes = append(indexes, e.Index); len(indexes) == most {
				break
			}
		}
		return indexes, nil
	}
	for _, c := range []struct {
		after uint64
		most  int
		want  string
	}{{0, 99, "[1 2 3 4 5]"}, {3, 99, "[4 5]"}, {3, 1, "[4]"}, {5, 99, "[]"}, {9, 99, "[]"}} {
		if got, err := read(c.after, c.most); fmt.Sprint(got) != c.want || err != nil {
			t.Errorf("after %d, at most %d: %v, %v", c.after, c.most, got, err)
		}
	}
	if err := logs.DeleteRange(3, 3); err != nil {
		t.Fatal(err)
	}
	if got, err := read(1, 99); fmt.Sprint(got) != "[2]" || !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("over a gap: %v, %v", got, err)
	}
}

// TestNewsOfTheLeader verifies that subscribers are notified only of changes.
func TestNewsOfTheLeader(t *testing.T) {
	l := newLeaders()
	for i, c := range []struct {
		hint *wire.LeaderHint
		news bool
	}{
		{&wire.LeaderHint{}, false}, {&wire.LeaderHint{Id: "n1", Term: 1}, true}, {&wire.LeaderHint{Id: "n1", Term: 1}, false},
		{&wire.LeaderHint{Id: "n1", Term: 2}, true}, {&wire.LeaderHint{}, true},
	} {
		l.change(c.hint)
		news := len(l.wake) == 1
		if news {
			<-l.wake
		}
		if last, _ := l.news(); news != c.news || last.Term != c.hint.Term || last.Id != c.hint.Id {
			t.Errorf("change %d: news %v", i, news)
		}
	}
}
