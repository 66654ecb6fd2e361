package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/cmd/qlock/bench"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxMetrics bounds what is read of a node's metrics, which are some ten kilobytes.
const maxMetrics = 8 << 20

// asked are the nodes whose CPU and memory are sampled.
type asked struct {
	svc   service
	nodes []bench.Node
}

// benchNodes looks at the cluster before it is loaded: which nodes it has, and whether other clients use
// it.
func benchNodes(ctx context.Context, c *cli.Context, svc service) (*asked, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout(c, openTimeout))
	defer cancel()
	status, err := svc.Status(ctx, &wire.StatusRequest{})
	if err != nil {
		return nil, err
	}
	if status.GetSessions() > 0 && !c.Bool("beside-others") {
		if err := othersServed(ctx, svc); err != nil {
			return nil, err
		}
	}
	given := c.String("http")
	if given == "" {
		return &asked{svc, advertised(status.GetNodes())}, nil
	}
	a := &asked{svc: svc}
	for _, addr := range strings.Split(given, ",") {
		addr = strings.TrimSpace(addr)
		a.nodes = append(a.nodes, bench.Node{ID: addr, HTTP: addr})
	}
	if len(a.nodes) != len(status.GetNodes()) {
		return nil, usagef("--http names %s, but the cluster has %d: what some use is not what all use",
			count(uint64(len(a.nodes)), "node"), len(status.GetNodes()))
	}
	return a, nil
}

// advertised returns the HTTP addresses that the nodes advertise.
func advertised(members []*wire.NodeStatus) []bench.Node {
	var nodes []bench.Node
	for _, m := range members {
		n := bench.Node{ID: m.GetId()}
		if m.GetHttpAddr() != "" {
			n.HTTP = reachableHost(m)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// sample reads the metrics of all nodes in parallel. Values of a node that does not answer soon are
// unknown.
func (a *asked) sample(ctx context.Context) bench.Sample {
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	s := bench.Sample{Nodes: make([]bench.Node, len(a.nodes))}
	var wg sync.WaitGroup
	wg.Go(func() {
		if status, err := a.svc.Status(ctx, &wire.StatusRequest{}); err == nil {
			s.Leader = bench.Leader{ID: status.GetLeaderId(), Term: fmt.Sprint(status.GetTerm())}
		}
	})
	for i, n := range a.nodes {
		wg.Go(func() { s.Nodes[i] = a.ask(ctx, n) })
	}
	wg.Wait()
	return s
}

// ask reads the metrics of one node.
func (a *asked) ask(ctx context.Context, n bench.Node) bench.Node {
	if n.HTTP == "" {
		n.Unknown = "it advertises no HTTP port; start it with --http-addr, or give --http"
		return n
	}
	var text bytes.Buffer
	if err := a.svc.Metrics(ctx, n.HTTP, &text); err != nil {
		n.Unknown = oneLine(err.Error())
		return n
	}
	n.Read(&text)
	return n
}

// Metrics reads the metrics from a node's HTTP port.
func (c cluster) Metrics(ctx context.Context, addr string, to io.Writer) error {
	httpClient, base, err := c.httpClient(addr)
	if err != nil {
		return err
	}
	defer httpClient.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", req.URL, resp.Status)
	}
	_, err = io.Copy(to, io.LimitReader(resp.Body, maxMetrics))
	return err
}
