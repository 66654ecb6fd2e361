package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/cmd/qlock/words"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Report is what one node says.
type Report struct {
	Node string
	// Status has the node's view of the others and its examination; nil if it did not answer.
	Status *wire.StatusResponse
	// Samples are the node's latest measurements; nil if it did not answer.
	Samples []*wire.Sample
	// Err is why it did not answer.
	Err string
}

// The thresholds of Nodes.
const (
	// slowSync is a median, and a sync longer than half of the heartbeat timeout delays heartbeats noticeably.
	slowSync = 20 * time.Millisecond
	// clockDifference makes times in logs and the ends of tokens ambiguous. The cluster refuses to add a node whose clock
	// differs by badClock.
	clockDifference, badClock = time.Second, 30 * time.Second
	// littleDisk is room for a few snapshots, and leastDisk for some segments of the log.
	littleDisk, leastDisk = 2 << 30, 512 << 20
	// recent is the number of samples that cover the last minute.
	recent = 12
	// fixedMemory is what a node takes besides state and buffers.
	fixedMemory = 64 << 20
)

// Nodes returns what is wrong according to the reports of the nodes, which each have asked the others.
func Nodes(reports []Report) (findings []Finding) {
	for _, r := range reports {
		if r.Status == nil {
			continue
		}
		disk(&findings, r)
		machine(&findings, r)
		paths(&findings, r, reports)
	}
	clocks(&findings, reports)
	alike(&findings, reports)
	times(&findings, reports)
	Sort(findings)
	return findings
}

// Silent returns a finding for each node that others reach, but that has not answered qlock.
func Silent(reports []Report) (findings []Finding) {
	for _, r := range reports {
		if r.Status == nil && slices.ContainsFunc(reports, func(other Report) bool { return status(other, r.Node).GetReachable() }) {
			found(&findings, Warning, r.Node, "it could not be examined: "+words.Printable(r.Err), "make its HTTP port reachable from here, or run qlock doctor where it is")
		}
	}
	return findings
}

// status returns what a node says about another one; nil if it says nothing.
func status(r Report, about string) *wire.NodeStatus {
	for _, n := range r.Status.GetNodes() {
		if n.GetId() == about {
			return n
		}
	}
	return nil
}

func microseconds(us uint32) time.Duration { return time.Duration(us) * time.Microsecond }

func heartbeat(r Report) time.Duration {
	return time.Duration(r.Status.GetExamination().GetHeartbeatTimeoutMs()) * time.Millisecond
}

// disk checks how long syncs take, and the space that is left.
func disk(findings *[]Finding, r Report) {
	e := r.Status.GetExamination()
	faster := "use a faster disk for --data-dir, or one that nothing else writes to"
	if text := e.GetSyncError(); text != "" {
		found(findings, Critical, r.Node, "the data directory cannot be synced: "+words.Printable(text), "see the log of the node, and replace its disk")
	}
	longest := microseconds(e.GetSyncMaxUs())
	for _, s := range r.Samples[max(0, len(r.Samples)-recent):] {
		longest = max(longest, microseconds(s.GetDiskSyncMaxUs()))
	}
	median := microseconds(e.GetSyncMedianUs())
	switch timeout := heartbeat(r); {
	case timeout > 0 && longest >= timeout:
		found(findings, Critical, r.Node, fmt.Sprintf("a sync of the disk took %v, as long as the heartbeat timeout of %v", longest, timeout), faster)
	case timeout > 0 && longest >= timeout/2:
		found(findings, Warning, r.Node, fmt.Sprintf("a sync of the disk took %v, more than half of the heartbeat timeout of %v", longest, timeout), faster)
	case median >= slowSync:
		found(findings, Warning, r.Node, fmt.Sprintf("syncs of the disk take %v (median), and each commit waits for one", median), faster)
	}
	if e.GetDiskBytes() == 0 {
		return
	}
	what, do := fmt.Sprintf("%d MiB are free on the disk of the data directory", e.GetDiskFreeBytes()>>20), "make room: a node that cannot write stops"
	switch free := e.GetDiskFreeBytes(); {
	case free < leastDisk:
		found(findings, Critical, r.Node, what, do)
	case free < littleDisk:
		found(findings, Warning, r.Node, what, do)
	}
}

// machine checks the limits of the machine, the clock and the certificate.
func machine(findings *[]Finding, r Report) {
	e := r.Status.GetExamination()
	if e.GetOpenFilesLimit() > 0 && e.GetOpenFilesLimit() < e.GetOpenFilesNeeded() {
		found(findings, Warning, r.Node, fmt.Sprintf("it may open %d files, and its limits of connections need %d", e.GetOpenFilesLimit(), e.GetOpenFilesNeeded()),
			"raise the limit (LimitNOFILE= of systemd, ulimit -n), or lower --max-connections and --http-max-connections")
	}
	if e.GetMachineMemoryBytes() > 0 && e.GetMemoryLimitBytes() > e.GetMachineMemoryBytes() {
		found(findings, Warning, r.Node, fmt.Sprintf("--memory-limit is %d MiB, and the machine or container has %d", e.GetMemoryLimitBytes()>>20, e.GetMachineMemoryBytes()>>20),
			"lower --memory-limit, or the kernel may kill the node before it refuses requests")
	}
	if needs := r.Status.GetSettings().GetMaxStateBytes() + e.GetBufferLimitBytes() + fixedMemory; e.GetMemoryLimitBytes() > 0 && needs > e.GetMemoryLimitBytes() {
		found(findings, Warning, r.Node, fmt.Sprintf("the cluster's --max-state-bytes, its buffers and the program may take %d MiB, and its --memory-limit is %d", needs>>20, e.GetMemoryLimitBytes()>>20),
			"raise --memory-limit of this node")
	}
	if steps := time.Duration(e.GetClockStepsMs()) * time.Millisecond; steps >= clockDifference {
		found(findings, Warning, r.Node, fmt.Sprintf("its clock was set by %s within the last hour, or the machine was suspended", words.Span(steps)),
			"let an NTP client adjust the speed of the clock instead of setting it")
	}
	for _, addr := range e.GetUncertifiedAddrs() {
		found(findings, Warning, r.Node, "its certificate does not name the host of "+words.Printable(addr)+", under which it is advertised",
			"issue one that does (qlock tls init --node), or correct --advertise-client-addr and --advertise-http-addr")
	}
}

// paths checks the way from one node to each other one, at the address that the other one advertises.
func paths(findings *[]Finding, r Report, reports []Report) {
	for _, other := range reports {
		n := status(r, other.Node)
		timeout := heartbeat(r)
		took := microseconds(n.GetCallUs())
		switch {
		case n == nil || other.Node == r.Node:
		case !n.GetReachable() && other.Status != nil:
			found(findings, Critical, r.Node, fmt.Sprintf("it does not reach %s at %s", words.Printable(other.Node), words.Printable(n.GetPeerAddr())),
				"correct --advertise-peer-addr of "+words.Printable(other.Node)+", or let the firewall pass the peer port")
		case timeout > 0 && took >= timeout:
			found(findings, Warning, r.Node, fmt.Sprintf("a call of %s took %v, as long as the heartbeat timeout of %v", words.Printable(other.Node), took, timeout),
				"raise --heartbeat-timeout and --election-timeout on all nodes, or move the nodes closer together")
		}
	}
}

// clocks compares the clocks, once for each pair of nodes.
func clocks(findings *[]Finding, reports []Report) {
	for i, a := range reports {
		for _, b := range reports[i+1:] {
			apart := max(difference(a, b.Node), difference(b, a.Node))
			if apart < clockDifference {
				continue
			}
			severity := Warning
			if apart >= badClock {
				severity = Critical
			}
			found(findings, severity, "", fmt.Sprintf("the clocks of %s and %s differ by %s", words.Printable(a.Node), words.Printable(b.Node), words.Span(apart)),
				"synchronise the clocks of all machines with NTP")
		}
	}
}

// difference returns by how much the clocks of two nodes differ at least.
func difference(r Report, other string) time.Duration {
	n := status(r, other)
	if n.GetCallUs() == 0 {
		return 0
	}
	return (time.Duration(n.GetClockAheadMs()) * time.Millisecond).Abs() - microseconds(n.GetCallUs())/2
}

// alike checks what should be the same on all nodes.
func alike(findings *[]Finding, reports []Report) {
	differing := func(value func(Report) string, what, do string) {
		nodes := map[string][]string{}
		for _, r := range reports {
			if v := value(r); v != "" {
				nodes[v] = append(nodes[v], words.Printable(r.Node))
			}
		}
		if len(nodes) < 2 {
			return
		}
		var texts []string
		for v, ids := range nodes {
			texts = append(texts, fmt.Sprintf("%s on %s", words.Printable(v), strings.Join(ids, ", ")))
		}
		slices.Sort(texts)
		found(findings, Warning, "", what+": "+strings.Join(texts, "; "), do)
	}
	differing(func(r Report) string { return status(r, r.Node).GetVersion() }, "the nodes run different versions", "upgrade the others")
	differing(func(r Report) string { return level(reports, r.Node) }, "the nodes have different feature levels", "upgrade the others")
	differing(func(r Report) string {
		e := r.Status.GetExamination()
		if e == nil {
			return ""
		}
		return fmt.Sprintf("%v and %v", heartbeat(r), time.Duration(e.GetElectionTimeoutMs())*time.Millisecond)
	}, "--heartbeat-timeout and --election-timeout differ", "give all nodes the same")
}

// level returns the feature level of a node as any node knows it; empty if none does.
func level(reports []Report, node string) string {
	for _, r := range reports {
		if n := status(r, node); n.GetLevel() > 0 {
			return fmt.Sprint(n.GetLevel())
		}
	}
	return ""
}

// ttls compares the shortest TTL with what a fail-over takes by the configuration, and with what one has taken. A node that
// was cut off has seen a long outage alone, so the median of all nodes counts.
func ttls(findings *[]Finding, least, failover time.Duration, outages []time.Duration) {
	slices.Sort(outages)
	outage := outages[(len(outages)-1)/2]
	switch {
	case least == 0:
	case least < outage:
		found(findings, Warning, "", fmt.Sprintf("sessions may have a TTL of %v, and in the last hour there was no leader for %v", least, outage),
			"let clients use longer TTLs, and look in the logs of the nodes why the leader was lost")
	case least < 3*failover:
		found(findings, Warning, "", fmt.Sprintf("sessions may have a TTL of %v, and a new leader takes up to %v", least, 2*failover),
			"let clients use longer TTLs, or lower --heartbeat-timeout and --election-timeout")
	}
}

// times compares the TTLs with the duration of a fail-over, counts the voters, and looks for a schedule of backups.
func times(findings *[]Finding, reports []Report) {
	var failover time.Duration
	var outages []time.Duration
	var s *wire.StatusResponse
	scheduled, voters := false, 0
	for _, r := range reports {
		if r.Status == nil {
			continue
		}
		s = r.Status
		e := s.GetExamination()
		failover = max(failover, time.Duration(e.GetHeartbeatTimeoutMs()+e.GetElectionTimeoutMs())*time.Millisecond)
		outages = append(outages, time.Duration(e.GetLongestOutageMs())*time.Millisecond)
		scheduled = scheduled || s.GetBackupSchedule().GetSchedule() != ""
	}
	if s == nil {
		return
	}
	for _, n := range s.GetNodes() {
		if n.GetVoter() {
			voters++
		}
	}
	ttls(findings, time.Duration(s.GetSettings().GetMinTtlMs())*time.Millisecond, failover, outages)
	if voters > 0 && voters%2 == 0 {
		found(findings, Warning, "", fmt.Sprintf("%d voters survive no more failures than %d", voters, voters-1), "add or remove one with qlock cluster")
	}
	if !scheduled && voters > 1 {
		found(findings, Warning, "", "no backups are scheduled", "start the nodes with --backup-dir")
	}
}
