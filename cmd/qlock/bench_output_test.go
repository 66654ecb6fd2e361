//go:build unix

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/cmd/qlock/bench"
	"github.com/quorumlock/quorumlock/cmd/qlock/golden"
)

func ptr(x float64) *float64 { return &x }

// some returns percentiles of about ms milliseconds.
func some(count int64, ms float64) bench.Percentiles {
	return bench.Percentiles{Count: count, MeanMs: 1.1 * ms, P50Ms: ms, P90Ms: 1.5 * ms, P99Ms: 4 * ms, P999Ms: 10 * ms, MaxMs: 33 * ms}
}

// benchReports returns one report of each kind.
func benchReports() map[string]*bench.Report {
	n1 := bench.NodeReport{ID: "n1", HTTPAddr: "10.0.0.1:7402", CPUSeconds: ptr(1.25), ResidentBytesBefore: ptr(30 << 20), ResidentBytesAfter: ptr(41.5 * (1 << 20))}
	n2 := bench.NodeReport{ID: "n2", HTTPAddr: "10.0.0.2:7402", CPUSeconds: ptr(0.5), ResidentBytesBefore: ptr(29 << 20), ResidentBytesAfter: ptr(39 << 20)}
	gone := bench.NodeReport{ID: "n3", HTTPAddr: "10.0.0.3:7402", ResidentBytesBefore: ptr(29 << 20), NotKnown: "Get \"http://10.0.0.3:7402/metrics\": connection\x1b refused"}
	first, second := bench.Leader{ID: "n1", Term: "7"}, bench.Leader{ID: "n2", Term: "8"}
	return map[string]*bench.Report{
		"pairs": {Workload: bench.Pairs, Loop: "closed", Sessions: 1, Connections: 1, Locks: 1, Seed: "1", Prefix: "qlock-bench/5e0f", WarmUpSeconds: 2, DurationSeconds: 10,
			Unit: "pairs", Completed: 11_240, PerSecond: 1124, Errors: map[string]int64{},
			Latency: map[string]bench.Percentiles{"open": some(1, 2), "lock": some(11_240, 0.44), "unlock": some(11_240, 0.45), "pair": some(11_240, 0.89)},
			Gap:     &bench.Gap{LongestMs: 14.5, AtSeconds: 3.25, LongestSessionMs: 14.5}, LeaderBefore: first, LeaderAfter: first,
			Servers:          bench.Servers{CPUSeconds: ptr(1.75), CPUSecondsPer1000: ptr(0.1557), Cores: ptr(0.175), Nodes: []bench.NodeReport{n1, n2}},
			ClientCPUSeconds: 0.7},
		"failover": {Workload: bench.Failover, Loop: "closed", Sessions: 16, Connections: 4, Locks: 16, Seed: "1", Prefix: "p", DurationSeconds: 73, HoldMs: 5,
			Interrupted: true, Unit: "pairs", Completed: 700_000, PerSecond: 9589.04, Unfinished: 3, Errors: map[string]int64{"UNAVAILABLE": 1, "SESSION_LOST": 20}, SessionsLost: 2, SessionsUnclosed: 1,
			Latency: map[string]bench.Percentiles{"pair": some(700_000, 40)},
			Gap:     &bench.Gap{LongestMs: 1370, AtSeconds: 62.5, LongestSessionMs: 1420}, LeaderBefore: first, LeaderAfter: second,
			Servers: bench.Servers{Nodes: []bench.NodeReport{n1, gone}}},
		"open": {Workload: bench.Readers, Loop: "open", Sessions: 4, Connections: 1, Locks: 3, WritePercent: 10, Rate: 2500.5, Arrivals: "random", Seed: "42", Prefix: "p", WarmUpSeconds: 2, DurationSeconds: 10,
			Unit: "pairs", Completed: 25_001, PerSecond: 2500.1, Errors: map[string]int64{},
			Latency: map[string]bench.Percentiles{"late": some(25_001, 0.05), "read": some(22_500, 1), "write": some(2501, 3), "unlock": some(25_001, 0.5), "pair": some(25_001, 30)},
			Gap:     &bench.Gap{LongestMs: 3, AtSeconds: 0, LongestSessionMs: 9}, Servers: bench.Servers{Nodes: []bench.NodeReport{}}},
		"hot": {Workload: bench.Hot, Loop: "closed", Sessions: 1000, Connections: 256, Locks: 1, CachedIdleMs: 60_000, Seed: "1", Prefix: "p", DurationSeconds: 10, Unit: "hand-overs", Completed: 1, PerSecond: 0.1,
			Errors: map[string]int64{}, Latency: map[string]bench.Percentiles{"lock": some(1, 500), "handOver": some(1, 0.5)}, Gap: &bench.Gap{}, LeaderBefore: first, LeaderAfter: first,
			Servers: bench.Servers{Nodes: []bench.NodeReport{}}},
		"idle": {Workload: bench.Idle, Loop: "none", Sessions: 10_000, Connections: 256, Seed: "1", Prefix: "p", WarmUpSeconds: 2, DurationSeconds: 10, Unit: "sessions", Completed: 10_000, PerSecond: 5000,
			Errors: map[string]int64{}, Latency: map[string]bench.Percentiles{"open": some(10_000, 20)}, LeaderBefore: first, LeaderAfter: first,
			Servers: bench.Servers{CPUSeconds: ptr(1.75), Cores: ptr(0.175), BytesPerSession: ptr(2254.4), Nodes: []bench.NodeReport{n1, n2}}},
		"held": {Workload: bench.Held, Loop: "none", Sessions: 20, Connections: 20, Locks: 10_000, Seed: "1", Prefix: "p", WarmUpSeconds: 2, DurationSeconds: 10, Unit: "locks", Completed: 10_000, PerSecond: 20_000,
			Errors: map[string]int64{}, Latency: map[string]bench.Percentiles{"lock": some(10_000, 1)}, LeaderBefore: first, LeaderAfter: first,
			Servers: bench.Servers{CPUSeconds: ptr(1.75), Cores: ptr(0.175), BytesPerLock: ptr(212.4), Nodes: []bench.NodeReport{n1, n2}}},
	}
}

func TestBenchReports(t *testing.T) {
	for name, report := range benchReports() {
		var people, programs bytes.Buffer
		writeReport(&people, report)
		raw, err := fields{report}.MarshalJSON()
		if err == nil {
			raw, err = asJSON(raw, false)
		}
		if err != nil {
			t.Fatal(err)
		}
		programs.Write(raw)
		golden.Compare(t, "bench-"+name+".table", people.String())
		golden.Compare(t, "bench-"+name+".json", programs.String())
	}
	unknown := benchReports()["idle"]
	unknown.Servers = bench.Servers{Nodes: []bench.NodeReport{}}
	var people bytes.Buffer
	writeReport(&people, unknown)
	golden.Compare(t, "bench-unknown.table", people.String())
}

func TestLatenciesForPeople(t *testing.T) {
	for ms, want := range map[float64]string{
		0: "0µs", 0.0312: "31µs", 0.9994: "999µs", 0.9996: "1.00ms", 1.234: "1.23ms", 9.996: "10.0ms", 45.64: "45.6ms",
		99.96: "100ms", 123.4: "123ms", 999.6: "1.00s", 3051: "3.05s", 61_000: "61.00s",
	} {
		if got := inMillis(ms); got != want {
			t.Errorf("%v: %s, want %s", ms, got, want)
		}
	}
	if got := fmt.Sprint(inSeconds(59.994), " ", inSeconds(60), " ", inSeconds(3605)); got != "59.99s 1m 1h" {
		t.Error(got)
	}
}

// TestMeasures checks that only verbs that measure restart the process with relaxed timers, because the
// command of run would inherit them.
func TestMeasures(t *testing.T) {
	for words, want := range map[string]bool{
		"bench pairs": true, "--timeout 3s bench hot --sessions 3": true,
		"bench": false, "bench pairs --help": false, "bench quickly": false, "run bench -- bench pairs": false,
		"--cert bench": false, "status": false, "": false,
	} {
		if measures(strings.Fields(words)) != want {
			t.Errorf("qlock %s: %v", words, !want)
		}
	}
}
