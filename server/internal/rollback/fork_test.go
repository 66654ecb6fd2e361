package rollback

import (
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// at returns a position: a revision, followed by pairs of a term and the revision at which it began.
func at(revision uint64, starts ...uint64) *wire.LogPosition {
	p := &wire.LogPosition{Revision: revision}
	for i := 0; i < len(starts); i += 2 {
		p.TermStarts = append(p.TermStarts, &wire.TermStart{Term: starts[i], Revision: starts[i+1]})
	}
	return p
}

// ledBy returns a position whose last term is led by another start of a node.
func ledBy(nonce uint64, p *wire.LogPosition) *wire.LogPosition {
	p.TermStarts[len(p.TermStarts)-1].Nonce = nonce
	return p
}

func TestForked(t *testing.T) {
	for name, c := range map[string]struct {
		a, b *wire.LogPosition
		want bool
	}{
		"nothing":                            {nil, nil, false},
		"nothing applied yet":                {at(0), at(50, 1, 1, 2, 30), false},
		"the same":                           {at(50, 1, 1, 2, 30), at(50, 1, 1, 2, 30), false},
		"one lags within a term":             {at(40, 1, 1, 2, 30), at(50, 1, 1, 2, 30), false},
		"one lags by a term":                 {at(20, 1, 1), at(50, 1, 1, 2, 30), false},
		"one remembers less":                 {at(50, 2, 30), at(50, 1, 1, 2, 30), false},
		"terms of different times":           {at(20, 1, 1), at(900, 7, 500, 8, 800), false},
		"another term at the same place":     {at(50, 1, 1, 2, 30), at(50, 1, 1, 3, 30), true},
		"another leader in the same term":    {at(50, 1, 1, 2, 30), ledBy(7, at(50, 1, 1, 2, 30)), true},
		"the same leader":                    {ledBy(7, at(50, 1, 1, 2, 30)), ledBy(7, at(50, 1, 1, 2, 30)), false},
		"the same term at another place":     {at(50, 1, 1, 2, 30), at(50, 1, 1, 2, 31), true},
		"another term at the oldest place":   {at(50, 2, 30), at(50, 3, 30), true},
		"the other is as far and without it": {at(50, 1, 1, 2, 30), at(30, 1, 1), true},
		"a term that the other went without": {at(50, 1, 1, 2, 30), at(45, 1, 1), true},
		"both went on from the same place":   {at(200, 1, 1, 5, 150), at(130, 1, 1, 6, 121), true},
		"long ago, and both remember":        {at(900, 1, 1, 5, 150, 9, 800), at(900, 1, 1, 6, 121, 9, 850), true},
	} {
		for _, swapped := range []bool{false, true} {
			a, b := c.a, c.b
			if swapped {
				a, b = b, a
			}
			if got := Forked(a, b); (got != "") != c.want {
				t.Errorf("%s (swapped: %v): %q", name, swapped, got)
			}
		}
	}
}
