package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/cmd/qlock/bench"
)

// notKnown is printed for unknown values.
const notKnown = "not known"

// writeReport writes a report for people.
func writeReport(w io.Writer, r *bench.Report) {
	fmt.Fprintf(w, "%s, %s: %s on %s, %s after a warm-up of %s\n", r.Workload, loopOf(r), count(uint64(r.Sessions), "session"),
		count(uint64(r.Connections), "connection"), inSeconds(r.DurationSeconds), inSeconds(r.WarmUpSeconds))
	fmt.Fprintf(w, "%.1f %s/s, %d in all; %s\n", r.PerSecond, r.Unit, r.Completed, failures(r))
	if len(r.Latency) > 0 {
		fmt.Fprintln(w)
		writeLatency(w, r)
	}
	fmt.Fprintln(w)
	writeCosts(w, r)
}

// loopOf describes the loop of the load.
func loopOf(r *bench.Report) string {
	switch {
	case r.Workload == bench.Held:
		return count(uint64(r.Locks), "lock")
	case r.Loop == "none":
		return "no requests"
	}
	text := r.Loop + " loop"
	if r.Loop == "open" {
		text += fmt.Sprintf(" of %g/s, %s", r.Rate, r.Arrivals)
	}
	if r.Workload == bench.Readers {
		text += fmt.Sprintf(", %d%% writes under %s", r.WritePercent, count(uint64(r.Locks), "lock"))
	}
	if r.CachedIdleMs > 0 {
		text += ", cached for up to " + span(time.Duration(r.CachedIdleMs*float64(time.Millisecond))) + " unused"
	}
	if r.HoldMs > 0 {
		text += ", each held for " + inMillis(r.HoldMs)
	}
	return text
}

// failures describes what went wrong.
func failures(r *bench.Report) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r.Errors)) {
		parts = append(parts, fmt.Sprintf("%d %s", r.Errors[name], name))
	}
	if len(parts) == 0 {
		parts = append(parts, "no errors")
	}
	add := func(is bool, text string) {
		if is {
			parts = append(parts, text)
		}
	}
	add(r.Unfinished > 0, fmt.Sprintf("%d unfinished", r.Unfinished))
	add(r.SessionsLost > 0, count(uint64(r.SessionsLost), "session")+" lost")
	add(r.SessionsUnclosed > 0, count(uint64(r.SessionsUnclosed), "session")+" left to end with the TTL")
	add(r.Interrupted, "INTERRUPTED")
	return strings.Join(parts, ", ")
}

// latencyOrder lists the latencies in the order in which they occur.
var latencyOrder = []string{"open", "late", "lock", "read", "write", "handOver", "unlock", "pair"}

func writeLatency(w io.Writer, r *bench.Report) {
	t := newTable("LATENCY", "COUNT", "MEAN", "P50", "P90", "P99", "P99.9", "MAX")
	for _, name := range latencyOrder {
		if p, ok := r.Latency[name]; ok {
			t.row(name, fmt.Sprint(p.Count), inMillis(p.MeanMs), inMillis(p.P50Ms), inMillis(p.P90Ms), inMillis(p.P99Ms), inMillis(p.P999Ms), inMillis(p.MaxMs))
		}
	}
	t.write(w)
}

// writeCosts writes the cost for nodes and client.
func writeCosts(w io.Writer, r *bench.Report) {
	t := &table{}
	if g := r.Gap; g != nil {
		t.row("longest gap", fmt.Sprintf("%s without an answer to anybody, from %s on; %s for one session",
			inMillis(g.LongestMs), inSeconds(g.AtSeconds), inMillis(g.LongestSessionMs)))
	}
	t.row("leader", leaders(r))
	t.row("servers' CPU", serversCPU(r))
	switch r.Workload {
	case bench.Idle:
		t.row("servers' memory", grown(r.Servers.BytesPerSession, "%.0f bytes for each session, all nodes together"))
	case bench.Held:
		t.row("servers' memory", grown(r.Servers.BytesPerLock, "%.0f bytes for each lock and node"))
	}
	for _, n := range r.Servers.Nodes {
		t.row("  "+printable(n.ID), nodeCosts(n))
	}
	t.row("own CPU", fmt.Sprintf("%s, %.2f cores", inSeconds(r.ClientCPUSeconds), r.ClientCPUSeconds/max(r.DurationSeconds, 1e-6)))
	t.write(w)
}

// leaders describes the leader and whether it changed.
func leaders(r *bench.Report) string {
	name := func(l bench.Leader) string {
		if l.ID == "" {
			return notKnown
		}
		return printable(l.ID) + " in term " + l.Term
	}
	if r.LeaderBefore == r.LeaderAfter && r.LeaderBefore.ID != "" {
		return name(r.LeaderBefore) + ", before and after"
	}
	return name(r.LeaderBefore) + " before, " + name(r.LeaderAfter) + " after"
}

func serversCPU(r *bench.Report) string {
	s := r.Servers
	if s.CPUSeconds == nil {
		return notKnown
	}
	text := fmt.Sprintf("%s, %.2f cores", inSeconds(*s.CPUSeconds), *s.Cores)
	if s.CPUSecondsPer1000 != nil {
		text += fmt.Sprintf(", %s for 1000 %s", inMillis(1000**s.CPUSecondsPer1000), r.Unit)
	}
	return text
}

// nodeCosts describes the cost for one node.
func nodeCosts(n bench.NodeReport) string {
	if n.NotKnown != "" {
		return notKnown + ": " + printable(n.NotKnown)
	}
	return fmt.Sprintf("%s of CPU, resident memory %s before, %s after",
		inSeconds(*n.CPUSeconds), mebibytes(*n.ResidentBytesBefore), mebibytes(*n.ResidentBytesAfter))
}

// grown describes the growth of the nodes' memory.
func grown(bytes *float64, format string) string {
	if bytes == nil {
		return notKnown + ": not every node reports growth; restart the nodes, or load them more"
	}
	return fmt.Sprintf(format, *bytes)
}

func mebibytes(bytes float64) string { return fmt.Sprintf("%.1f MiB", bytes/(1<<20)) }

// inMillis formats a latency with three digits: 312µs, 1.21ms, 45.6ms, 3.05s.
func inMillis(ms float64) string {
	switch {
	case ms < 0.9995:
		return fmt.Sprintf("%.0fµs", ms*1000)
	case ms < 9.995:
		return fmt.Sprintf("%.2fms", ms)
	case ms < 99.95:
		return fmt.Sprintf("%.1fms", ms)
	case ms < 999.5:
		return fmt.Sprintf("%.0fms", ms)
	}
	return fmt.Sprintf("%.2fs", ms/1000)
}

// inSeconds formats a longer duration.
func inSeconds(s float64) string {
	if s < 60 {
		return fmt.Sprintf("%.2fs", s)
	}
	return span(time.Duration(s * float64(time.Second)))
}
