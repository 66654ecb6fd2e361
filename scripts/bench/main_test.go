package main

import (
	"fmt"
	"strings"
	"testing"
)

// tables returns output of benchstat, with one row per unit.
func tables(allocs, bytes, times string) string {
	return fmt.Sprintf(`goos: linux
pkg: x/gone
,base,
,allocs/op,CI
Old-2,7,0%%

pkg: x/fsm
,base,,head,,,
,sec/op,CI,sec/op,CI,vs base,P
%s
geomean,1,,9,,+800.00%%,

,base,,head,,,
,B/op,CI,B/op,CI,vs base,P
%s
Removed-2,7,0%%
Added-2,,,7000,0%%
geomean,1,,9,,+800.00%%,

,base,,head,,,
,allocs/op,CI,allocs/op,CI,vs base,P
%s
Removed-2,7,0%%
Added-2,,,9000,0%%
geomean,,,3,,?,
`, times, bytes, allocs)
}

func TestJudge(t *testing.T) {
	const same, p = "A-2,7,0%,7,0%,~,p=1.000 n=6", "p=0.002 n=6"
	for _, c := range []struct {
		why, allocs, bytes, times, want string
	}{
		{"nothing changed", same, same, same, ""},
		{"times do not count", same, same, "A-2,1e-7,0%,9e-7,0%,+800.00%," + p, ""},
		{"one more", "A/x=1-2,7,0%,8,0%,+14.29%," + p, same, same, "x/fsm A/x=1-2 allocs/op 7 8"},
		{"one where there were none", "A-2,0,0%,1,0%,?," + p, same, same, "x/fsm A-2 allocs/op 0 1"},
		{"fewer", "A-2,8,0%,7,0%,-12.50%," + p, same, same, ""},
		{"perhaps chance", "A-2,7,0%,8,9%,~,p=0.100 n=6", same, same, ""},
		{"one in two rounds", "A-2,7,0%,7.5,9%,+7.14%," + p, same, same, ""},
		{"one among thousands", "A-2,7000,0%,7001,0%,+0.01%," + p, same, same, ""},
		{"many among thousands", "A-2,7000,0%,7100,0%,+1.43%," + p, same, same, "x/fsm A-2 allocs/op 7000 7100"},
		{"larger", same, "A-2,100,0%,116,0%,+16.00%," + p, same, "x/fsm A-2 B/op 100 116"},
		{"a little larger", same, "A-2,1000,0%,1020,0%,+2.00%," + p, same, ""},
		{"a few bytes", same, "A-2,8,0%,16,0%,+100.00%," + p, same, ""},
	} {
		grown, compared, err := judge(strings.NewReader(tables(c.allocs, c.bytes, c.times)))
		if err != nil || compared != 1 {
			t.Errorf("%s: compared %d, %v", c.why, compared, err)
		}
		var got []string
		for _, g := range grown {
			got = append(got, fmt.Sprint(g.name, " ", g.unit, " ", g.base, " ", g.head))
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}
	if _, _, err := judge(strings.NewReader(tables("A-2,many,0%,8,0%,?,"+p, same, same))); err == nil {
		t.Error("many is no number")
	}
}
