package hostile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// bounds are the acceptable effects of an attack on nodes and honest callers.
type bounds struct {
	// memory is the maximum memory of each node at any time, in KiB.
	memory int
	// growth is how much each may have grown afterwards, in KiB.
	growth int
	// p99 is for every operation of honest callers; operator and health are the maxima of these operations.
	p99, operator, health time.Duration
	// near requires that the p99 of locks stays near that before the attack.
	near bool
	// fewest is the minimum number of samples per operation and phase.
	fewest int
	// shared is set if others use the machine too, which may stop a leader for so long that an election is
	// called.
	shared bool
}

// latency summarizes samples.
type latency struct {
	count         int
	p50, p99, max time.Duration
}

func latencyOf(samples []time.Duration) latency {
	if len(samples) == 0 {
		return latency{}
	}
	sorted := slices.Sorted(slices.Values(samples))
	at := func(percent int) time.Duration { return sorted[(len(sorted)-1)*percent/100] }
	return latency{len(sorted), at(50), at(99), sorted[len(sorted)-1]}
}

func (l latency) String() string {
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1e3) }
	return ms(l.p50) + "/" + ms(l.p99) + "/" + ms(l.max)
}

// nodeFigures are the measurements of one node, memory in KiB.
type nodeFigures struct {
	id           string
	rss          [phases]int // during contains the peak
	files        [phases]int
	goroutines   [phases]int
	restartPeak  int // 0 if it was not restarted
	term         [phases]int
	disagreement string // about the state, if any
}

// figures are all measurements of one attack.
type figures struct {
	attack     string
	unproved   error // why the attack did not take effect
	achieved   string
	nodes      []nodeFigures
	latencies  map[string][phases]latency
	failures   map[string][phases]int
	lost       int
	refused    int  // calls refused for the budget of the whole state
	filled     bool // whether the attack is meant to fill that budget
	leader     [phases]string
	complaints []string
}

// judge returns what was wrong.
func (f *figures) judge(b bounds) (findings []string) {
	add := func(format string, args ...any) { findings = append(findings, fmt.Sprintf(format, args...)) }
	if f.unproved != nil {
		add("the attack did not take effect: %v", f.unproved)
	}
	for _, n := range f.nodes {
		f.judgeNode(n, b, add)
	}
	if f.leader[before] != f.leader[after] && !b.shared {
		add("%s led before, %s leads after", f.leader[before], f.leader[after])
	}
	if f.lost > 0 {
		add("%d honest sessions or holds were lost", f.lost)
	}
	if f.refused > 0 && !f.filled {
		add("%d calls were refused for --max-state-bytes, which this attack must not fill", f.refused)
	}
	for _, op := range ops {
		for p := range phases {
			f.judgeOp(op, p, b, add)
		}
	}
	for _, complaint := range f.complaints {
		add("%s", complaint)
	}
	return findings
}

func (f *figures) judgeNode(n nodeFigures, b bounds, add func(string, ...any)) {
	if n.rss[during] > b.memory {
		add("%s took %d MiB, its budget is %d MiB", n.id, n.rss[during]>>10, b.memory>>10)
	}
	if n.restartPeak > b.memory {
		add("%s took %d MiB after its restart, its budget is %d MiB", n.id, n.restartPeak>>10, b.memory>>10)
	}
	if n.rss[after] > n.rss[before]+b.growth {
		add("%s has %d MiB afterwards, %d MiB before", n.id, n.rss[after]>>10, n.rss[before]>>10)
	}
	if n.files[after] > n.files[before]+fileBound || n.goroutines[after] > n.goroutines[before]+goroutineBound {
		add("%s has %d files and %d goroutines afterwards, %d and %d before", n.id, n.files[after], n.goroutines[after], n.files[before], n.goroutines[before])
	}
	if n.term[before] != n.term[after] && !b.shared {
		add("%s is in term %d afterwards, %d before: an election was called", n.id, n.term[after], n.term[before])
	}
	if n.disagreement != "" {
		add("%s: %s", n.id, n.disagreement)
	}
}

func (f *figures) judgeOp(op string, p phase, b bounds, add func(string, ...any)) {
	when := []string{"before", "during", "while settling", "after"}[p]
	l := f.latencies[op][p]
	if failed := f.failures[op][p]; failed > 0 {
		add("%s %s: %d of %d failed", op, when, failed, l.count)
	}
	switch {
	case p == settling:
	case l.count < b.fewest:
		add("%s %s: %d samples, %d are needed", op, when, l.count, b.fewest)
	case op == opOperator && l.max > b.operator:
		add("%s %s: the longest took %v, allowed is %v", op, when, l.max, b.operator)
	case op == opHealth && l.max > b.health:
		add("%s %s: the longest took %v, allowed is %v", op, when, l.max, b.health)
	case op == opLock && p == during && b.near && l.p99 > nearTo(f.latencies[op][before].p99):
		add("%s %s: p99 is %v, %v before", op, when, l.p99, f.latencies[op][before].p99)
	case op != opOperator && op != opHealth && l.p99 > b.p99:
		add("%s %s: p99 is %v, allowed is %v", op, when, l.p99, b.p99)
	}
}

// nearTo returns the longest latency that counts as near to a quiet cluster's.
func nearTo(quiet time.Duration) time.Duration { return max(2*quiet, quiet+50*time.Millisecond) }

// tableHead names the columns of line.
const tableHead = "| attack | achieved | peak MiB of the leader and the others | lock p50/p99/max ms before, during, after | during: handover | connect | http | operator | health | lost | failed | refused |"

// line returns one row of the table of all attacks.
func (f *figures) line() string {
	var peaks []string
	for _, n := range f.nodes {
		peak := fmt.Sprint(n.rss[during] >> 10)
		if n.restartPeak > 0 {
			peak += fmt.Sprintf(" (restarted %d)", n.restartPeak>>10)
		}
		peaks = append(peaks, peak)
	}
	cells := []string{f.attack, f.achieved, strings.Join(peaks, ", ")}
	lock := f.latencies[opLock]
	cells = append(cells, fmt.Sprintf("%v, %v, %v", lock[before], lock[during], lock[after]))
	failed := 0
	for _, op := range ops {
		if op != opLock {
			cells = append(cells, f.latencies[op][during].String())
		}
		failed += f.failures[op][during]
	}
	return "| " + strings.Join(append(cells, fmt.Sprint(f.lost), fmt.Sprint(failed), fmt.Sprint(f.refused)), " | ") + " |"
}

// good returns figures with which nothing is wrong.
func good() (*figures, bounds) {
	b := bounds{near: true, memory: 700 << 10, growth: 64 << 10, p99: 250 * time.Millisecond, operator: 2 * time.Second, health: time.Second, fewest: 10}
	f := &figures{attack: "none", latencies: map[string][phases]latency{}, failures: map[string][phases]int{}, leader: [phases]string{before: "n1", after: "n1"}}
	for _, op := range ops {
		l := latency{100, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond}
		f.latencies[op], f.failures[op] = [phases]latency{l, l, l, l}, [phases]int{}
	}
	for _, id := range []string{"n1", "n2", "n3"} {
		f.nodes = append(f.nodes, nodeFigures{
			id: id, rss: [phases]int{before: 50 << 10, during: 600 << 10, after: 100 << 10},
			files: [phases]int{before: 40, during: 900, after: 45}, goroutines: [phases]int{before: 80, during: 4000, after: 85},
			term: [phases]int{before: 2, after: 2}, restartPeak: 300 << 10,
		})
	}
	return f, b
}

// TestVerdict verifies that the judge finds each thing that can be wrong, and nothing else.
func TestVerdict(t *testing.T) {
	f, b := good()
	if findings := f.judge(b); len(findings) > 0 {
		t.Errorf("of good figures: %q", findings)
	}
	slow := func(op string, p phase, l latency) func(*figures) {
		return func(f *figures) {
			all := f.latencies[op]
			all[p] = l
			f.latencies[op] = all
		}
	}
	for want, spoil := range map[string]func(*figures){
		"did not take effect":          func(f *figures) { f.unproved = fmt.Errorf("0 requests") },
		"n2 took 701 MiB":              func(f *figures) { f.nodes[1].rss[during] = 701 << 10 },
		"701 MiB after its restart":    func(f *figures) { f.nodes[2].restartPeak = 701 << 10 },
		"120 MiB afterwards":           func(f *figures) { f.nodes[0].rss[after] = 120 << 10 },
		"900 files":                    func(f *figures) { f.nodes[0].files[after] = 900 },
		"4000 goroutines":              func(f *figures) { f.nodes[0].goroutines[after] = 4000 },
		"an election":                  func(f *figures) { f.nodes[1].term[after] = 3 },
		"n1 led before, n2":            func(f *figures) { f.leader[after] = "n2" },
		"1 honest sessions":            func(f *figures) { f.lost = 1 },
		"7 calls were refused":         func(f *figures) { f.refused = 7 },
		"n3: its state differs":        func(f *figures) { f.nodes[2].disagreement = "its state differs" },
		"lock during: p99":             slow(opLock, during, latency{100, 1, 251 * time.Millisecond, time.Second}),
		"lock during: p99 is 61ms, 10": slow(opLock, during, latency{100, 1, 61 * time.Millisecond, time.Second}),
		"http after: p99":              slow(opHTTP, after, latency{100, 1, 251 * time.Millisecond, time.Second}),
		"operator during: the longest": slow(opOperator, during, latency{100, 1, 1, 2100 * time.Millisecond}),
		"health during: the longest":   slow(opHealth, during, latency{100, 1, 1, 1100 * time.Millisecond}),
		"handover before: 9 samples":   slow(opHandover, before, latency{9, 1, 1, 1}),
		"connect during: 1 of 100":     func(f *figures) { f.failures[opConnect] = [phases]int{during: 1} },
		"a forged line":                func(f *figures) { f.complaints = []string{"a forged line"} },
	} {
		f, b := good()
		spoil(f)
		findings := f.judge(b)
		if len(findings) != 1 || !strings.Contains(findings[0], want) {
			t.Errorf("found %q, want %q", findings, want)
		}
	}
}

// TestLatencies summarizes known samples.
func TestLatencies(t *testing.T) {
	var samples []time.Duration
	for i := range 1_000 {
		samples = append(samples, time.Duration(1_000-i)*time.Millisecond)
	}
	if got, want := latencyOf(samples), (latency{1_000, 500 * time.Millisecond, 990 * time.Millisecond, time.Second}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := latencyOf(nil); got != (latency{}) {
		t.Errorf("of nothing: %+v", got)
	}
}
