package main

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// measured returns figures that meet every goal, some of them just so.
func measured() figures {
	f := figures{}
	for _, g := range goals {
		for _, change := range []float64{1.1, 1, 0.9} {
			f.add(g.figure, change*g.goal)
			if g.against != "" {
				f.add(g.against, change)
			}
		}
	}
	f.add("many/perSecond", 400_000)
	f.add("many/idleCPU", 2.5)
	f.add(variant("turns", true, "p99Ms"), 2)
	f.add(variant("turns", false, "p99Ms"), 1)
	return f
}

func TestTable(t *testing.T) {
	m := &measurement{options: &options{}, figures: measured()}
	var out bytes.Buffer
	if missed := m.table(&out); missed != 0 {
		t.Errorf("%d goals missed:\n%s", missed, &out)
	}
	for _, line := range []string{
		"| pairs/s, one goroutine, its own lock, cached | 700,000 | 700,000 | 630,000 | 770,000 | ≥ 700000 | met |\n",
		"| wait of these in ms, p99 | 1.10 / 1.00 | 1.10× | 1.10× | 1.10× | ≤ 1.1× | met |\n",
		"completed 400,000 pairs/s; their sessions alone take 2.50 % of a core. Waits in turn, p99: 2.00 ms cached, 1.00 ms not cached.\n",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no line %q in\n%s", line, &out)
		}
	}
}

// TestEveryGoalCanBeMissed worsens one figure at a time.
func TestEveryGoalCanBeMissed(t *testing.T) {
	for _, g := range goals {
		f := measured()
		worse := 0.99
		if g.less {
			worse = 1.01
		}
		for i := range f[g.figure] {
			f[g.figure][i] *= worse
		}
		m := &measurement{options: &options{}, figures: f}
		if missed := m.table(io.Discard); missed != 1 {
			t.Errorf("%s: %d goals missed", g.what, missed)
		}
	}
}

func TestHandOvers(t *testing.T) {
	of := func(tokens ...uint64) (o outcome) {
		for _, token := range tokens {
			o.Tokens, o.Waits = append(o.Tokens, token), append(o.Waits, time.Duration(token))
		}
		return o
	}
	for _, c := range []struct {
		a, b outcome
		want []time.Duration
	}{
		{of(), of(), nil}, {of(1, 2, 3), of(), nil}, {of(1, 3, 5), of(2, 4), []time.Duration{2, 3, 4, 5}},
		{of(1, 2, 3, 70, 71), of(65), []time.Duration{65, 70}}, // local grants between the hand-overs
	} {
		if got := handOvers(c.a, c.b); !slices.Equal(got, c.want) {
			t.Errorf("%v and %v: hand-overs after %v, want %v", c.a.Tokens, c.b.Tokens, got, c.want)
		}
	}
}

func TestPercentile(t *testing.T) {
	var all []time.Duration
	for ms := 100; ms > 0; ms-- {
		all = append(all, time.Duration(ms)*time.Millisecond)
	}
	if p50, p99 := percentile(all, 50), percentile(all, 99); p50 != 50 || p99 != 99 {
		t.Errorf("%v and %v", p50, p99)
	}
	if p99 := percentile([]time.Duration{time.Second}, 99); p99 != 1000 {
		t.Errorf("%v", p99)
	}
}

func TestCommandLine(t *testing.T) {
	dir := "--dir=." // /tmp may be in memory
	o, err := parse([]string{dir, "--smoke", "--window", "3s"})
	if err != nil || o.rounds != 1 || o.window != 3*time.Second || o.warmUp != smokeWarmUp {
		t.Errorf("%+v, %v", o, err)
	}
	for _, bad := range [][]string{{dir, "more"}, {dir, "--rounds", "0"}, {dir, "--window", "0s"}, {dir, "--warm-up", "-1s"}, {"--frob"}} {
		if _, err := parse(bad); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestTasks carries out what needs no cluster.
func TestTasks(t *testing.T) {
	var out bytes.Buffer
	if err := (&locker{}).serve(t.Context(), strings.NewReader(`{"Do": "dance"}`), &out); err != nil || !strings.Contains(out.String(), `there is no task`) {
		t.Errorf("%v, %s", err, &out)
	}
}
