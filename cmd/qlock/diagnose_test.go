package main

import (
	"errors"
	"testing"

	"github.com/quorumlock/quorumlock/client"
)

// TestWhichFindingsEndACommand verifies that an endpoint that may only be slow never ends a command early, and
// that nodes that are not there count as an unavailable cluster.
func TestWhichFindingsEndACommand(t *testing.T) {
	well, slow, refused, wrong := finding{}, finding{text: "does not answer"}, finding{text: "refuses", refused: true}, finding{text: "is an HTTP port", final: true}
	for _, c := range []struct {
		findings          []finding
		hopeless, useless bool
		code              int
	}{
		{nil, false, false, 0},
		{[]finding{well, refused}, false, false, 0},
		{[]finding{slow, refused}, false, false, 0},
		{[]finding{slow, wrong}, false, false, 0},
		{[]finding{refused, refused}, false, true, exitNoLeader},
		{[]finding{refused, wrong}, false, true, exitNoLeader},
		{[]finding{wrong}, true, true, exitUsage},
	} {
		if hopeless(c.findings) != c.hopeless || useless(c.findings) != c.useless {
			t.Errorf("%+v: hopeless %v, useless %v", c.findings, hopeless(c.findings), useless(c.findings))
		}
		m := &misdialled{c.findings}
		if c.useless && (m.code() != c.code || errors.Is(m, client.ErrUnavailable) != (c.code == exitNoLeader)) {
			t.Errorf("%+v: exit code %d, unavailable %v", c.findings, m.code(), errors.Is(m, client.ErrUnavailable))
		}
	}
}
