package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// statusVerb shows the health of the cluster, as far as it can be determined.
func statusVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "show the cluster: its leader, its nodes, and how many locks are held",
		Description: "The line \"last minute\" has medians: how long each node's disk took to sync the log, and the\n" +
			"leader to commit an entry.\n\n" +
			"Exit codes: 0 well; 79 the cluster serves, and would not if one more voter failed, or grants\n" +
			"are suspended; 69 no serving leader.",
		Action: func(c *cli.Context) error {
			if len(arguments(c)) > 0 {
				return usagef("status takes no arguments")
			}
			return withService(c, dial, func(svc service) error { return status(c, svc) })
		},
	}
}

// searchTime is how long the leader is searched at the other endpoints after a removed node has answered.
const searchTime = time.Second

// status asks the leader and, in parallel, any node that answers. Without a leader the state known to that
// node is still printed, but the command fails. Both requests share the timeout. A node that was removed knows no leader.
func status(c *cli.Context, svc service) error {
	ctx, cancel := context.WithTimeout(c.Context, timeout(c, defaultTimeout))
	defer cancel()
	ctx, stop := watchEndpoints(ctx, c, svc)
	defer stop()
	search, giveUp := context.WithCancel(ctx)
	defer giveUp()
	stale := make(chan *wire.StatusResponse, 1)
	go func() {
		answer, err := svc.Status(ctx, &wire.StatusRequest{Stale: true})
		if err != nil {
			answer = nil
		}
		stale <- answer
		if answer.GetRemoved() != "" {
			awaitLeader(search, c)
			giveUp()
		}
	}()
	answer, err := svc.Status(search, &wire.StatusRequest{})
	if err == nil {
		return cmp.Or(showStatus(c, answer), atRisk(answer))
	}
	gaveUp := search.Err() != nil && ctx.Err() == nil
	if wrong := (*misdialled)(nil); !gaveUp && (exitCode(err) != exitNoLeader || errors.As(err, &wrong)) {
		return withEndpoints(c, err)
	}
	if answer = <-stale; answer == nil {
		return withEndpoints(c, err)
	}
	if showErr := showStatus(c, answer); showErr != nil {
		return showErr
	}
	if answer.GetRemoved() != "" {
		return failf(exitNoLeader, "node %s was removed from the cluster and shows what it last knew: ask a member, with --endpoints", printable(answer.GetNodeId()))
	}
	return failf(exitNoLeader, "no serving leader within %v; node %s shows what it last knew: bring up a majority of the voters",
		timeout(c, defaultTimeout), printable(answer.GetNodeId()))
}

// awaitLeader leaves the search time for the leader if there are other endpoints.
func awaitLeader(search context.Context, c *cli.Context) {
	if len(endpoints(c)) < 2 {
		return
	}
	select {
	case <-time.After(searchTime):
	case <-search.Done():
	}
}

// atRisk returns an error if the cluster serves, and would not after the failure of one more voter although it
// has more. A cluster of one or two voters tolerates none in any case.
func atRisk(s *wire.StatusResponse) error {
	voters, up := 0, 0
	for _, n := range s.GetNodes() {
		if n.GetVoter() {
			voters++
			if n.GetReachable() {
				up++
			}
		}
	}
	switch majority := voters/2 + 1; {
	case s.GetGrantsSuspended():
		return failf(exitAtRisk, "grants are suspended: bring the other voters up, or replace the node that is wrong")
	case voters > 2 && up <= majority:
		return failf(exitAtRisk, "%d of %d voters are reachable: if one more fails, no lock can be granted; start the others, or replace them with qlock cluster", up, voters)
	}
	return nil
}

func statusWithin(ctx context.Context, svc service, bound time.Duration, stale bool) (*wire.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	return svc.Status(ctx, &wire.StatusRequest{Stale: stale})
}

func showStatus(c *cli.Context, answer *wire.StatusResponse) error {
	return show(c, one{answer}, func(w io.Writer) { writeStatus(w, answer) })
}

// writeStatus describes the cluster for people.
func writeStatus(w io.Writer, s *wire.StatusResponse) {
	leader := "leader " + printable(s.GetLeaderId())
	if s.GetLeaderId() == "" {
		leader = "no leader"
	}
	fmt.Fprintf(w, "cluster %s, %s, term %d, as node %s sees it\n",
		dash(printable(s.GetClusterId())), leader, s.GetTerm(), dash(printable(s.GetNodeId())))
	fmt.Fprintf(w, "%s, %s, %s, %s; last token %d, revision %d\n",
		count(s.GetSessions(), "session"), count(s.GetLocks(), "lock"), count(s.GetHolds(), "hold"),
		count(s.GetWaiters(), "waiter"), s.GetToken(), s.GetRevision())
	if !s.GetHasPolicy() {
		mark(w, urgent)
		fmt.Fprintf(w, "policy: %s (qlock policy apply)\n", everything)
	}
	if removed := s.GetRemoved(); removed != "" {
		mark(w, urgent)
		fmt.Fprintf(w, "REMOVED: node %s says: %s\n", printable(s.GetNodeId()), printable(removed))
	}
	writeTolerance(w, s)
	writeLevel(w, s)
	writeLatencies(w, s.GetNodes())
	writeBackups(w, s, time.Now())
	writeAgreement(w, s)
	writeHealth(w, s)
	writeNodes(w, s.GetNodes())
}

// writeTolerance writes how many voters may fail. Only a leader knows.
func writeTolerance(w io.Writer, s *wire.StatusResponse) {
	pilot := s.GetAutopilot()
	if pilot == nil {
		return
	}
	tolerance := "none"
	if n := pilot.GetFailureTolerance(); n > 0 {
		tolerance = count(uint64(n), "node")
	}
	rules := ""
	if pilot.GetCleanup() {
		rules = fmt.Sprintf("; dead nodes are removed after %s, down to %s", millis(pilot.GetDeadAfterMs()), count(uint64(pilot.GetMinQuorum()), "voter"))
	}
	fmt.Fprintf(w, "failure tolerance: %s%s\n", tolerance, rules)
}

// writeHealth writes which nodes are not healthy, and which one was removed.
func writeHealth(w io.Writer, s *wire.StatusResponse) {
	for _, n := range s.GetNodes() {
		h := n.GetHealth()
		if h == nil || h.GetHealthy() {
			continue
		}
		mark(w, urgent)
		removal := ""
		if in := h.GetRemovedInMs(); in > 0 {
			removal = "; it is removed in " + millis(in)
		}
		fmt.Fprintf(w, "UNHEALTHY %s for %s: %s%s\n", printable(n.GetId()), millis(h.GetSinceMs()), printable(h.GetReason()), removal)
	}
	if last := s.GetAutopilot().GetLastRemoval(); last != nil {
		fmt.Fprintf(w, "removed by autopilot: %s at %s: %s\n", printable(last.GetNodeId()), when(last.GetUnixMs()), printable(last.GetReason()))
	}
}

// writeLatencies writes a line with the latencies of the disks and of commits, if any is known. The table of the nodes
// has no room for them in 80 columns.
func writeLatencies(w io.Writer, nodes []*wire.NodeStatus) {
	var disks, commits []string
	for _, n := range nodes {
		if us := n.GetDiskSyncUs(); us > 0 {
			disks = append(disks, printable(n.GetId())+" "+micros(us))
		}
		if us := n.GetCommitUs(); us > 0 {
			commits = append(commits, micros(us))
		}
	}
	var known []string
	if len(disks) > 0 {
		known = append(known, "disk "+strings.Join(disks, ", "))
	}
	if len(commits) > 0 {
		known = append(known, "commit "+strings.Join(commits, ", "))
	}
	if len(known) > 0 {
		fmt.Fprintf(w, "last minute: %s (medians)\n", strings.Join(known, "; "))
	}
}

// writeBackups describes the latest scheduled backup. It writes nothing for a cluster that has neither a backup nor a
// schedule.
func writeBackups(w io.Writer, s *wire.StatusResponse, now time.Time) {
	last, schedule := s.GetLastBackup(), s.GetBackupSchedule()
	switch {
	case last != nil:
		fmt.Fprintf(w, "backup: %s ago on %s, verified: %s\n", span(now.Sub(time.UnixMilli(last.GetUnixMs()))), printable(last.GetNodeId()), printable(last.GetName()))
	case schedule.GetSchedule() != "":
		fmt.Fprintf(w, "backup: none yet; the schedule is %s\n", printable(schedule.GetSchedule()))
	}
	if failures := uint64(schedule.GetFailures()); failures > 0 {
		mark(w, urgent)
		fmt.Fprintf(w, "BACKUP FAILED: %s since; the log of %s says why\n", count(failures, "attempt"), dash(printable(s.GetNodeId())))
	}
	if schedule.GetOverdue() {
		mark(w, urgent)
		fmt.Fprintf(w, "BACKUP OVERDUE by the schedule %s: see the log of the leader\n", printable(schedule.GetSchedule()))
	}
	if files := uint64(schedule.GetForeignFiles()); files > 0 {
		fmt.Fprintf(w, "among the backups: %s that this cluster did not make; the log of the leader names the first\n", count(files, "file"))
	}
}

// writeAgreement reports if the nodes' states differ after applying the same log.
func writeAgreement(w io.Writer, s *wire.StatusResponse) {
	if s.GetDifferingIndex() > s.GetAgreedIndex() {
		mark(w, urgent)
		fmt.Fprintf(w, "THE NODES DIFFER in their state after log entry %d, and no majority agrees: please report this\n", s.GetDifferingIndex())
	}
	if s.GetGrantsSuspended() {
		mark(w, urgent)
		fmt.Fprintln(w, "GRANTS ARE SUSPENDED: bring the other voters up, or replace the node that is wrong; what is held may be released")
	}
}

// writeAlarms writes the alarms of the nodes, followed by the advice for each kind.
func writeAlarms(w io.Writer, nodes []*wire.NodeStatus) {
	var advice []string
	for _, n := range nodes {
		for _, a := range n.GetAlarms() {
			mark(w, urgent)
			fmt.Fprintf(w, "ALARM of %s since %s: %s\n", printable(n.GetId()), when(a.GetRaisedUnixMs()), printable(a.GetMessage()))
			if !slices.Contains(advice, a.GetAdvice()) {
				advice = append(advice, a.GetAdvice())
			}
		}
	}
	for _, do := range advice {
		fmt.Fprintf(w, "WHAT TO DO: %s\n", printable(do))
	}
}

// expiryNotice is how long before its expiry a certificate is warned about. Nodes do the same in their logs.
const expiryNotice = 30 * day

// writeExpiries warns of certificates of nodes that expire soon.
func writeExpiries(w io.Writer, nodes []*wire.NodeStatus, now time.Time) {
	for _, n := range nodes {
		expires := time.UnixMilli(n.GetCertificateExpiresUnixMs())
		remaining := expires.Sub(now)
		if n.GetCertificateExpiresUnixMs() == 0 || remaining > expiryNotice {
			continue
		}
		mark(w, urgent)
		what := "expires in " + span(remaining) + ", at"
		if remaining <= 0 {
			what = "EXPIRED at"
		}
		fmt.Fprintf(w, "CERTIFICATE of %s %s %s: renew it with qlock tls renew, and copy it to the node\n",
			printable(n.GetId()), what, when(n.GetCertificateExpiresUnixMs()))
	}
}

// writeNodes writes the table of members, after their alarms.
func writeNodes(w io.Writer, nodes []*wire.NodeStatus) {
	writeAlarms(w, nodes)
	writeExpiries(w, nodes, time.Now())
	if len(nodes) == 0 {
		fmt.Fprintln(w, "no nodes known")
		return
	}
	t := newTable("NODE", "ROLE", "STATE", "APPLIED", "CLIENT", "PEER", "HTTP", "VERSION")
	for _, n := range nodes {
		state, applied := "unreachable", "-"
		if n.GetReachable() {
			state, applied = "up", fmt.Sprint(n.GetAppliedIndex())
		}
		t.row(printable(n.GetId()), role(n), state, applied, dash(printable(n.GetClientAddr())),
			dash(printable(n.GetPeerAddr())), dash(printable(n.GetHttpAddr())), dash(printable(n.GetVersion())))
	}
	t.write(w)
}
