package client

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestConnect lets nodes name leaders or be down. It compares the node that the client connects to, and the
// leader that it considers unreachable.
func TestConnect(t *testing.T) {
	all := func(hint *wire.LeaderHint) [3]*wire.LeaderHint { return [3]*wire.LeaderHint{hint, hint, hint} }
	for name, test := range map[string]struct {
		said  [3]*wire.LeaderHint
		down  []string
		next  *wire.LeaderHint // the leader named by a hint
		used  bool             // the last leader was reached through a tunnel
		want  []string
		avoid string
	}{
		"it leads":              {all(hintOf("n1", 5)), nil, nil, false, []string{"n1"}, ""},
		"another one leads":     {all(hintOf("n3", 5)), nil, nil, false, []string{"n3"}, ""},
		"a hint":                {all(hintOf("n3", 5)), nil, hintOf("n3", 5), false, []string{"n3"}, ""},
		"the first is down":     {all(hintOf("n3", 5)), []string{"n1"}, nil, false, []string{"n3"}, ""},
		"the leader is down":    {all(hintOf("n3", 5)), []string{"n3"}, nil, false, []string{"n1", "n2"}, "n3:7400"},
		"a hint that is down":   {all(hintOf("n3", 5)), []string{"n3"}, hintOf("n3", 5), false, []string{"n1", "n2"}, "n3:7400"},
		"nobody leads":          {all(&wire.LeaderHint{}), nil, nil, false, []string{"n1", "n2", "n3"}, ""},
		"two say who leads":     {[3]*wire.LeaderHint{{}, hintOf("n3", 5), hintOf("n3", 5)}, nil, nil, false, []string{"n3"}, ""},
		"one says, and is down": {[3]*wire.LeaderHint{{}, hintOf("n3", 5), {}}, []string{"n3"}, nil, false, []string{"n1"}, ""},
		"all are down":          {all(hintOf("n1", 5)), []string{"n1", "n2", "n3"}, nil, false, nil, ""},
		"after a tunnel":        {all(hintOf("n3", 5)), nil, nil, true, []string{"n1"}, ""},
	} {
		bubble.Test(t, func(t *testing.T) {
			f := newFake(t, 3)
			for i, id := range []string{"n1", "n2", "n3"} {
				f.node(id).believes = test.said[i]
			}
			for _, id := range test.down {
				f.node(id).down = true
			}
			c := newClient(f.config())
			defer c.cancel()
			c.next, c.reroute.used = test.next, test.used
			cn, err := c.connect()
			if (err != nil) != (test.want == nil) || c.next != nil {
				t.Fatalf("%s: %v, next %v", name, err, c.next)
			}
			avoid := c.avoid.addr
			for _, id := range test.down {
				if test.avoid == "" && avoid == id+":7400" && c.avoid.term == 0 {
					avoid = "" // not as a leader
				}
			}
			if avoid != test.avoid {
				t.Errorf("%s: %q is taken for out of reach, want %q", name, avoid, test.avoid)
			}
			if cn != nil {
				found := false
				for _, id := range test.want {
					found = found || cn.node == id
				}
				if !found {
					t.Errorf("%s: connected to %s, want one of %q", name, cn.node, test.want)
				}
				cn.discard()
			}
			c.wg.Wait()
			time.Sleep(time.Second)
			if open := len(f.open()); open != 0 {
				t.Errorf("%s: %d connections stay open", name, open)
			}
		})
	}
}
