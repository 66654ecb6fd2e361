package report

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/scripts/compare/system"
	"github.com/quorumlock/quorumlock/scripts/compare/workload"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 9}, 3}, {[]float64{1, 1, 100, 1, 100}, 1}} {
		before := append([]float64(nil), c.values...)
		if got := Median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", before, got, c.want)
		}
		for i := range before {
			if c.values[i] != before[i] {
				t.Fatalf("the rounds' order was changed: %v", c.values)
			}
		}
	}
}

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		unit  unit
		value float64
		want  string
	}{
		{perSecond, 0, "0"}, {perSecond, 999.6, "1,000"}, {perSecond, 1234567, "1,234,567"}, {perSecond, 12, "12"},
		{milliseconds, 0.3049, "0.305 ms"}, {milliseconds, 4.567, "4.57 ms"}, {milliseconds, 45.67, "45.7 ms"}, {milliseconds, 1234.5, "1,234 ms"},
		{bytes, 240.4, "240 B"}, {bytes, 8 << 10, "8.00 KiB"}, {bytes, -300, "-300 B"}, {bytes, -1e5, "-97.7 KiB"},
		{faults, 3, "3"},
	} {
		if got := c.unit.format(c.value); got != c.want {
			t.Errorf("%v is written %q, want %q", c.value, got, c.want)
		}
	}
}

// measured returns results that meet some goals and miss others, some of them narrowly.
func measured() *Results {
	r := &Results{
		Begun: time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC), Command: "make compare", Rounds: 3, WindowSeconds: 5, WarmUpSeconds: 3,
		Machine:  Machine{CPU: "Some <CPU> & more", Cores: 2, MemoryBytes: 24 << 30, Kernel: "6.1.0"},
		Versions: map[string]string{system.Quorumlock: "v1", system.Etcd: "3.7.3"},
		FsyncMs:  []float64{1.2, 0.9, 1.0},
		Failures: []string{"round 2 of 3, etcd, hot: it ended\nand said why"},
	}
	for i := range 3 {
		wobble := float64(i-1) * 10
		r.Add(system.Quorumlock, map[string]float64{
			"pairs/1/perSecond": 2000 + wobble, "pairs/128/perSecond": 16000 + wobble, "pairs/1/p50Ms": 0.25, "pairs/128/cpuMsPer1000": 100,
			"hot/16/perSecond": 2000 + wobble, "hot/1000/outOfOrder": float64(i / 2), "long-queue/perSecond": 1600 + wobble, "long-queue/outOfOrder": 0,
			"held/bytesPerLock": 240, "tls/perSecond": 10000, "idle/bytesPerSession": 9000,
		})
		r.Add(system.QuorumlockTLS, map[string]float64{"tls/perSecond": 6900})
		r.Add(system.Quorumlock, map[string]float64{"cached/1/perSecond": 2000, "cached/128/cpuMsPer1000": 100})
		r.Add(system.QuorumlockCached, map[string]float64{"cached/1/perSecond": 500_000, "cached/128/cpuMsPer1000": 0.05})
		r.Add(system.QuorumlockRedis, map[string]float64{"redis-port/perSecond": 18000, "redis-port/p99Ms": 9})
		r.Add(system.QuorumlockRedisFollower, map[string]float64{"redis-port/perSecond": 10800})
		r.Add(system.RedisAlways, map[string]float64{"redis-port/perSecond": 40000})
		r.Add(system.RedlockAlways, map[string]float64{"redis-port/perSecond": 4501})
		r.Add(system.Etcd, map[string]float64{"pairs/1/perSecond": 1000 + wobble, "pairs/128/perSecond": 2001, "pairs/1/p50Ms": 0.5, "held/bytesPerLock": 0})
		r.Add(system.Redis, map[string]float64{"pairs/1/perSecond": 40000, "pairs/128/perSecond": 32000})
	}
	r.Finish()
	return r
}

func find(t *testing.T, r *Results, figure, against string) Row {
	t.Helper()
	for _, row := range r.Rows {
		if row.Figure == figure && row.Against == against {
			return row
		}
	}
	t.Fatalf("no row compares %s with %q", figure, against)
	return Row{}
}

func TestGoals(t *testing.T) {
	r := measured()
	for _, c := range []struct {
		figure, against string
		met             bool
	}{
		{"pairs/1/perSecond", "etcd", true},    // exactly twice
		{"pairs/128/perSecond", "etcd", false}, // slightly less than eight times
		{"pairs/128/perSecond", "one Redis, nothing kept", true},
		{"pairs/1/p50Ms", "etcd", true},
		{"long-queue/perSecond", "itself, 16 waiters", true},
		{"hot/1000/outOfOrder", "", false}, // in one of three rounds
		{"long-queue/outOfOrder", "", true},
		{"held/bytesPerLock", "", true},
		{"idle/bytesPerSession", "", false},
		{"tls/perSecond", "itself, without TLS", false},
		{"redis-port/perSecond", "one Redis, every write synced", true},
		{"redis-port/perSecond", "Redlock over five Redis, every write synced", false}, // slightly less than four times
		{"redis-port/perSecond", "itself, the leader's", true},                         // exactly 0.6 times
	} {
		if row := find(t, r, c.figure, c.against); row.Met == nil || *row.Met != c.met {
			t.Errorf("%s against %q: met is %v, want %v", c.figure, c.against, row.Met, c.met)
		}
	}
	if row := find(t, r, "cached/1/perSecond", "etcd"); *row.Ratio != 500 {
		t.Errorf("etcd's pairs are not those of ordinary locks: %+v", row)
	}
	if row := find(t, r, "cached/1/perSecond", "itself, not cached"); *row.Ratio != 250 {
		t.Errorf("compared with %v", *row.Theirs)
	}
	if row := find(t, r, "pairs/1/perSecond", "one Redis, nothing kept"); row.Met != nil || row.Goal != nil || *row.Ratio != 0.05 {
		t.Errorf("a comparison without a goal: %+v", row)
	}
	if row := find(t, r, "held/bytesPerLock", "etcd"); row.Met != nil || row.Ratio != nil {
		t.Errorf("a comparison with nothing: %+v", row)
	}
}

func TestMeasuresAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range measures {
		if seen[m.what] {
			t.Errorf("%q stands twice", m.what)
		}
		seen[m.what] = true
		for _, against := range m.rivals {
			if against.system == "" && !against.aims {
				t.Errorf("%q is compared with nothing", m.what)
			}
		}
	}
}

func TestMarkdown(t *testing.T) { golden(t, "compare.md", measured().Markdown()) }

func TestChart(t *testing.T) {
	chart, err := measured().Chart()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "compare.svg", chart)
	decoder := xml.NewDecoder(strings.NewReader(chart))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("it is no XML: %v", err)
		}
	}
	if !strings.Contains(chart, "prefers-color-scheme: dark") {
		t.Error("it cannot be read on dark ground")
	}
}

func TestChartOfNothing(t *testing.T) {
	r := &Results{}
	r.Finish()
	chart, err := r.Chart()
	if err != nil || strings.Count(chart, "<rect") != 1 { // the background
		t.Errorf("%v: %s", err, chart)
	}
}

func TestResultsAreJSON(t *testing.T) {
	text, err := json.Marshal(measured())
	if err != nil {
		t.Fatal(err)
	}
	var back Results
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if got := back.Figures[system.Quorumlock]["pairs/1/perSecond"]; len(got) != 3 || got[0] != 1990 {
		t.Errorf("the rounds are not in it: %v", got)
	}
}

func TestMachine(t *testing.T) {
	const cpuinfo = "processor\t: 0\nmodel name\t: AMD EPYC 7B13\nprocessor\t: 1\nmodel name\t: another\n"
	if got := value(cpuinfo, "model name"); got != "AMD EPYC 7B13" {
		t.Errorf("the CPU is %q", got)
	}
	if got := value("", "model name"); got != "unknown" {
		t.Errorf("without any it is %q", got)
	}
	if got := kibibytes(value("MemTotal:       24614000 kB\n", "MemTotal")); got != 24614000<<10 {
		t.Errorf("memory is %d", got)
	}
	if m := ThisMachine(); m.Cores < 1 || m.MemoryBytes == 0 || m.Kernel == "unknown" {
		t.Errorf("this machine is %+v", m)
	}
}

func TestFsyncLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	took, err := Fsync(dir)
	if err != nil || took <= 0 {
		t.Fatalf("%v ms, %v", took, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// golden compares with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s has changed: look at the difference that -update makes\n%s", path, got)
	}
}

// TestMeasuresAreMeasured checks the table's figures against the workloads, since the table contains only
// their names.
func TestMeasuresAreMeasured(t *testing.T) {
	measured := map[string]bool{} // by system and workload
	for _, stage := range workload.Stages(workload.Real) {
		for _, w := range stage.Workloads {
			for _, s := range stage.Systems {
				measured[s+" "+w.Name] = true
			}
		}
	}
	check := func(what, system, figure string) {
		if name := figure[:strings.LastIndex(figure, "/")]; !measured[system+" "+name] {
			t.Errorf("%q: nobody measures %s of %s", what, name, system)
		}
	}
	for _, m := range measures {
		check(m.what, m.system, m.figure)
		for _, with := range m.rivals {
			if figure := with.figure; figure != "" {
				check(m.what, with.system, figure)
			} else if with.system != "" {
				check(m.what, with.system, m.figure)
			}
		}
	}
}
