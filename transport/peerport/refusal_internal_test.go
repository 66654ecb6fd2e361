package peerport

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/internal/ratelog"
)

// TestRefusalsBeforeANodeKnowsItsCluster verifies that a node that is being added does not warn of the leader that calls it,
// which it cannot know yet, but of everything else.
func TestRefusalsBeforeANodeKnowsItsCluster(t *testing.T) {
	for _, c := range []struct {
		cluster string
		err     error
		warns   bool
	}{
		{"", refuse(ReasonUnknown, "no"), false},
		{"", refuse(ReasonCluster, "no"), true},
		{"", errors.New("noise"), true},
		{"c1", refuse(ReasonUnknown, "no"), true},
	} {
		var out bytes.Buffer
		l := layerOf(&known{cluster: c.cluster})
		l.ctx, l.log = t.Context(), hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Debug})
		l.warnings = ratelog.New(l.log)
		l.refused(&net.TCPAddr{Port: 1}, "n2", c.err)
		if warns := strings.Contains(out.String(), "[WARN]"); warns != c.warns || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("in cluster %q, %v: %s", c.cluster, c.err, out.String())
		}
		if l.refusals.counts[classify(c.err)] != 1 {
			t.Errorf("in cluster %q, %v: counted %v", c.cluster, c.err, l.refusals.counts)
		}
	}
}
