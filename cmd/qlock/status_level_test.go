package main

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestFeatureLevels verifies what status says about the cluster's level and those of its nodes.
func TestFeatureLevels(t *testing.T) {
	for name, c := range map[string]struct {
		cluster uint32
		nodes   []uint32 // of a, b, c
		says    string
	}{
		"no cluster yet":         {0, []uint32{1, 1}, ""},
		"all alike":              {1, []uint32{1, 1, 1}, "feature level 1\n"},
		"one is upgraded":        {1, []uint32{2, 1, 1}, "feature level 1, and not 2 yet because of b, c\n"},
		"one is held back":       {1, []uint32{2, 1, 2}, "feature level 1, and not 2 yet because of b\n"},
		"one is unknown":         {1, []uint32{2, 0, 2}, "feature level 1, and not 2 yet because of b\n"},
		"different new versions": {1, []uint32{2, 3, 2}, "feature level 1, about to be raised\n"},
		"raised":                 {2, []uint32{2, 2, 2}, "feature level 2\n"},
	} {
		s := &wire.StatusResponse{Level: c.cluster}
		for i, level := range c.nodes {
			s.Nodes = append(s.Nodes, &wire.NodeStatus{Id: string(rune('a' + i)), Level: level})
		}
		var out strings.Builder
		if writeLevel(&out, s); out.String() != c.says {
			t.Errorf("%s: %q, want %q", name, out.String(), c.says)
		}
	}
}
