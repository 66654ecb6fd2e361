package replica

import (
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

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
