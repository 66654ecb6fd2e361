package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/cmd/qlock/diagnosis"
	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// doctorTimeout bounds the whole examination: nodes measure their disks, and ask each other.
const doctorTimeout = 10 * time.Second

// doctorVerb examines every node.
func doctorVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "examine every node, and say what to change",
		Description: "Asks every node, through its HTTP port, to examine itself and the way to each other node: disk,\n" +
			"clock, limits, certificates, versions, addresses. Each node writes and syncs a small temporary\n" +
			"file in its data directory a few times. It works without a leader, and reports what it can learn.\n\n" +
			"Exit codes: 0 nothing found; 1 warnings; 2 errors; 69 no node answers.",
		Action: func(c *cli.Context) error {
			if len(arguments(c)) > 0 {
				return usagef("doctor takes no arguments: it examines the whole cluster")
			}
			return withService(c, dial, func(svc service) error { return doctor(c, svc) })
		},
	}
}

// doctor examines the cluster and then its nodes, and reports what it finds by the exit code too.
func doctor(c *cli.Context, svc service) error {
	known, err := statusOfAny(c, svc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context, timeout(c, doctorTimeout))
	defer cancel()
	reports := reportsOf(ctx, svc, known.GetNodes())
	result := diagnosed{cluster: known, reports: reports}
	result.findings = append(diagnosis.Cluster(known, 0, diagnosis.DefaultLimits(), time.Now()), diagnosis.Silent(reports)...)
	result.findings = append(result.findings, diagnosis.Nodes(reports)...)
	diagnosis.Sort(result.findings)
	if err := show(c, result, result.write); err != nil {
		return err
	}
	if worst := diagnosis.Worst(result.findings); worst > diagnosis.OK {
		return &failure{code: int(worst)}
	}
	return nil
}

// reportsOf asks all members at once.
func reportsOf(ctx context.Context, svc service, members []*wire.NodeStatus) []diagnosis.Report {
	reports := make([]diagnosis.Report, len(members))
	var asking sync.WaitGroup
	for i, n := range members {
		asking.Go(func() { reports[i] = reportOf(ctx, svc, n) })
	}
	asking.Wait()
	return reports
}

// reportOf asks one member.
func reportOf(ctx context.Context, svc service, n *wire.NodeStatus) diagnosis.Report {
	r := diagnosis.Report{Node: n.GetId()}
	if n.GetHttpAddr() == "" {
		r.Err = "it advertises no HTTP port"
		return r
	}
	status, samples, err := svc.ExamineAt(ctx, reachableHost(n))
	switch {
	case err != nil:
		r.Err = said(err)
	case status.GetNodeId() != n.GetId():
		r.Err = fmt.Sprintf("%s answers at its address %s", printable(status.GetNodeId()), printable(n.GetHttpAddr()))
	default:
		r.Status, r.Samples = status, samples.GetSamples()
	}
	return r
}

// ExamineAt asks the node whose HTTP port is at addr to examine itself, and for its samples.
func (c cluster) ExamineAt(ctx context.Context, addr string) (*wire.StatusResponse, *wire.ListSamplesResponse, error) {
	httpClient, base, err := c.httpClient(addr)
	if err != nil {
		return nil, nil, err
	}
	defer httpClient.CloseIdleConnections()
	node := wireconnect.NewClusterServiceClient(httpClient, base)
	status, statusErr := node.Status(ctx, connect.NewRequest(&wire.StatusRequest{Stale: true, Examine: true}))
	samples, samplesErr := node.ListSamples(ctx, connect.NewRequest(&wire.ListSamplesRequest{}))
	if err := errors.Join(statusErr, samplesErr); err != nil {
		return nil, nil, httpError(addr, err)
	}
	return status.Msg, samples.Msg, nil
}

// diagnosed is the result of an examination.
type diagnosed struct {
	cluster  *wire.StatusResponse
	reports  []diagnosis.Report
	findings []diagnosis.Finding
}

// examinedNode is a node in JSON.
type examinedNode struct {
	ID    string `json:"id"`
	Error string `json:"error"`
}

// MarshalJSON encodes no findings as [].
func (d diagnosed) MarshalJSON() ([]byte, error) {
	nodes := []examinedNode{}
	for _, r := range d.reports {
		nodes = append(nodes, examinedNode{r.Node, r.Err})
	}
	return json.Marshal(map[string]any{
		"clusterId": d.cluster.GetClusterId(), "leaderId": d.cluster.GetLeaderId(), "severity": diagnosis.Worst(d.findings),
		"nodes": nodes, "findings": append([]diagnosis.Finding{}, d.findings...),
	})
}

// write lists the findings for people.
func (d diagnosed) write(w io.Writer) {
	examined := 0
	for _, r := range d.reports {
		if r.Status != nil {
			examined++
		}
	}
	leader := "leader " + printable(d.cluster.GetLeaderId())
	if d.cluster.GetLeaderId() == "" {
		leader = "no leader"
	}
	fmt.Fprintf(w, "cluster %s, %s: %d of %s examined, %s\n", dash(printable(d.cluster.GetClusterId())), leader, examined,
		count(uint64(len(d.reports)), "node"), count(uint64(len(d.findings)), "finding"))
	for _, f := range d.findings {
		if f.Severity == diagnosis.Critical {
			mark(w, urgent)
		}
		where := ""
		if f.Node != "" {
			where = printable(f.Node) + ": "
		}
		fmt.Fprintf(w, "%s  %s%s\n    %s\n", f.Severity, where, f.What, f.Do)
	}
}
