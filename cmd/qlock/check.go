package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/cmd/qlock/diagnosis"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// checkVerb reports the health of the cluster to monitoring systems, in the manner of their plug-ins.
func checkVerb(dial dialer) *cli.Command {
	d := diagnosis.DefaultLimits()
	return &cli.Command{
		Name:  "check",
		Usage: "report the health of the cluster in one line, for monitoring systems",
		Description: "Exit codes: 0 OK; 1 WARNING; 2 CRITICAL, also if no leader or no node answers; 3 UNKNOWN, if the\n" +
			"command line is wrong or the cluster refuses it. The numbers after | are for graphs. A threshold\n" +
			"of 0 is never reached.",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "down-warning", Value: d.Down.Warning, Usage: "`NUMBER` of unreachable members"},
			&cli.IntFlag{Name: "down-critical", Value: d.Down.Critical, Usage: "`NUMBER` of unreachable members"},
			&cli.DurationFlag{Name: "wait-warning", Usage: "`DURATION` that a request has waited for a lock"},
			&cli.DurationFlag{Name: "wait-critical", Usage: "`DURATION` that a request has waited for a lock"},
			&cli.DurationFlag{Name: "backup-warning", Usage: "`AGE` of the last backup; one that is overdue by the schedule is a warning anyway"},
			&cli.DurationFlag{Name: "backup-critical", Usage: "`AGE` of the last backup"},
			&cli.DurationFlag{Name: "certificate-warning", Value: d.Certificate.Warning, Usage: "`DURATION` before the end of a node's certificate"},
			&cli.DurationFlag{Name: "certificate-critical", Value: d.Certificate.Critical, Usage: "`DURATION` before the end of a node's certificate"},
			&cli.IntFlag{Name: "budget-warning", Value: d.Budget.Warning, Usage: "`PERCENT` of the sessions, the locks or the state that the cluster may have"},
			&cli.IntFlag{Name: "budget-critical", Value: d.Budget.Critical, Usage: "`PERCENT` of the sessions, the locks or the state that the cluster may have"},
		},
		Action: func(c *cli.Context) error { return check(c, dial) },
	}
}

func limitsOf(c *cli.Context) diagnosis.Limits {
	durations := func(name string) diagnosis.Threshold[time.Duration] {
		return diagnosis.Threshold[time.Duration]{Warning: c.Duration(name + "-warning"), Critical: c.Duration(name + "-critical")}
	}
	numbers := func(name string) diagnosis.Threshold[int] {
		return diagnosis.Threshold[int]{Warning: c.Int(name + "-warning"), Critical: c.Int(name + "-critical")}
	}
	return diagnosis.Limits{Down: numbers("down"), Wait: durations("wait"), BackupAge: durations("backup"), Certificate: durations("certificate"), Budget: numbers("budget")}
}

// check prints one line, and returns an error without a text for the exit code, or one for checkFailed.
func check(c *cli.Context, dial dialer) error {
	if len(arguments(c)) > 0 {
		return usagef("check takes no arguments, see qlock check --help")
	}
	var answer *wire.StatusResponse
	var wait time.Duration
	limits := limitsOf(c)
	err := withService(c, dial, func(svc service) (err error) {
		if answer, err = statusOfAny(c, svc); err != nil {
			return err
		}
		if answer.GetLeaderId() != "" && limits.Wait != (diagnosis.Threshold[time.Duration]{}) {
			wait, err = oldestWait(c, svc)
		}
		return err
	})
	if err != nil {
		return err
	}
	findings := diagnosis.Cluster(answer, wait, limits, time.Now())
	text := fmt.Sprintf("leader %s, %d members, all reachable", printable(answer.GetLeaderId()), len(answer.GetNodes()))
	if ids := diagnosis.Unreachable(answer); len(ids) > 0 {
		text = fmt.Sprintf("leader %s, %d of %d members reachable", dash(printable(answer.GetLeaderId())), len(answer.GetNodes())-len(ids), len(answer.GetNodes()))
	}
	if len(findings) > 0 {
		text = summary(findings)
	}
	severity := diagnosis.Worst(findings)
	fmt.Fprintln(c.App.Writer, checkLine(severity, text)+" | "+perfdata(answer, wait, limits))
	if severity == diagnosis.OK {
		return nil
	}
	return &failure{code: int(severity)}
}

// checkLine is the line up to the numbers, which a | separates.
func checkLine(severity diagnosis.Severity, text string) string {
	return "QUORUMLOCK " + severity.String() + " - " + strings.ReplaceAll(text, "|", "/")
}

// checkFailed returns the exit code of a check that has failed with err, and writes its line unless check has done so:
// monitoring systems know no other codes. A cluster that does not answer is CRITICAL; anything else is UNKNOWN.
func checkFailed(w io.Writer, err error) int {
	code := exitCode(err)
	severity := diagnosis.Unknown
	switch {
	case code <= int(diagnosis.Critical):
		return code
	case code == exitNoLeader:
		severity = diagnosis.Critical
	}
	fmt.Fprintln(w, checkLine(severity, explain(err)))
	return int(severity)
}

// summary joins the findings, the worst first.
func summary(findings []diagnosis.Finding) string {
	texts := make([]string, len(findings))
	for i, f := range findings {
		if f.Node != "" {
			texts[i] = printable(f.Node) + ": "
		}
		texts[i] += f.What
	}
	return strings.Join(texts, "; ")
}

// statusOfAny returns the status that the leader proves or, without one, what some node knows. That has no leader then:
// a node that still follows one which cannot commit names it.
func statusOfAny(c *cli.Context, svc service) (*wire.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(c.Context, timeout(c, defaultTimeout))
	defer cancel()
	ctx, stop := watchEndpoints(ctx, c, svc)
	defer stop()
	stale := make(chan *wire.StatusResponse, 1)
	go func() {
		answer, err := svc.Status(ctx, &wire.StatusRequest{Stale: true})
		if err != nil {
			answer = nil
		}
		stale <- answer
	}()
	answer, err := svc.Status(ctx, &wire.StatusRequest{})
	if err == nil || exitCode(err) != exitNoLeader {
		return answer, withEndpoints(c, err)
	}
	if answer = <-stale; answer == nil {
		return nil, withEndpoints(c, err)
	}
	answer.LeaderId = ""
	return answer, nil
}

// oldestWait returns how long the oldest request has waited.
func oldestWait(c *cli.Context, svc service) (longest time.Duration, err error) {
	err = within(c, svc, defaultTimeout, func(ctx context.Context) error {
		answer, err := svc.ListContended(ctx, &wire.ListContendedRequest{Order: wire.ListContendedRequest_OLDEST_WAIT, Limit: 1})
		for _, lock := range answer.GetLocks() {
			longest = time.Duration(lock.GetOldest().GetWaitingMs()) * time.Millisecond
		}
		return err
	})
	return longest, err
}

// perfdata formats the numbers as 'label'=value[unit];warning;critical.
func perfdata(s *wire.StatusResponse, wait time.Duration, limits diagnosis.Limits) string {
	number := func(name string, value any, unit string, warning, critical any) string {
		return fmt.Sprintf("%s=%v%s;%v;%v", name, value, unit, warning, critical)
	}
	down := len(diagnosis.Unreachable(s))
	values := []string{
		number("members_down", down, "", limits.Down.Warning, limits.Down.Critical),
		number("sessions", s.GetSessions(), "", "", ""), number("locks", s.GetLocks(), "", "", ""), number("waiters", s.GetWaiters(), "", "", ""),
	}
	if limits.Wait != (diagnosis.Threshold[time.Duration]{}) {
		values = append(values, number("oldest_wait", int(wait.Seconds()), "s", limits.Wait.Warning.Seconds(), limits.Wait.Critical.Seconds()))
	}
	if last := s.GetLastBackup(); last != nil {
		age := time.Since(time.UnixMilli(last.GetUnixMs()))
		values = append(values, number("backup_age", int(age.Seconds()), "s", limits.BackupAge.Warning.Seconds(), limits.BackupAge.Critical.Seconds()))
	}
	for _, b := range diagnosis.Budgets(s) {
		values = append(values, number(b.Name+"_used", b.Percent(), "%", limits.Budget.Warning, limits.Budget.Critical))
	}
	return strings.Join(values, " ")
}
