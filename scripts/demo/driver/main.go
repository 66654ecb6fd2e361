package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/scripts/demo"
)

// options are the command line of run.
type options struct {
	bin       string
	requests  string
	workers   int
	noFencing bool
	keep      bool
	timeout   time.Duration
}

const usage = "usage: driver run|up|down [flags]"

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal(usage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	verb, args := os.Args[1], os.Args[2:]
	var err error
	switch verb {
	case "run":
		err = run(ctx, parse(args))
	case "up", "down":
		err = playground(ctx, verb, args)
	default:
		log.Fatal(usage)
	}
	if err != nil {
		log.Fatalf("\n%v", err)
	}
}

func parse(args []string) options {
	var o options
	flags := flag.NewFlagSet("run", flag.ExitOnError)
	flags.StringVar(&o.bin, "bin", "bin", "`directory` of the programs")
	flags.StringVar(&o.requests, "requests", "scripts/demo/refunds.csv", "`file` of requests")
	flags.IntVar(&o.workers, "workers", 8, "worker processes")
	flags.BoolVar(&o.noFencing, "no-fencing", false, "let the ledger take stale tokens: the demo must fail then")
	flags.BoolVar(&o.keep, "keep", false, "keep the temporary directory with data, logs and journal")
	flags.DurationVar(&o.timeout, "timeout", 3*time.Minute, "give up after this `time`")
	_ = flags.Parse(args) // exits on error
	return o
}

// run runs the whole demo in its own directory.
func run(ctx context.Context, o options) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	requests, err := demo.ReadRequests(o.requests)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "quorumlock-demo-")
	if err != nil {
		return err
	}
	if o.keep {
		fmt.Println("data, logs and journal stay in", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	c, err := newCluster(o.bin, dir)
	if err != nil {
		return err
	}
	s := &story{out: os.Stdout, began: time.Now(), cluster: c, total: len(requests), workers: map[int]*workerProcess{}, pause: pause{worker: 3}}
	defer func() { c.close(s.crash.leader.id) }()
	token, err := s.play(ctx, o, dir)
	if err != nil {
		return err
	}
	journal, err := readJournal(journalPath(dir))
	if err != nil {
		return err
	}
	a := examine(journal, requests)
	a.judge(s)
	fmt.Printf("\n%s\n", a.table(s, token))
	if err := a.verdict(); err != nil {
		return err
	}
	fmt.Println("Every order was refunded exactly once.")
	return nil
}

func journalPath(dir string) string { return filepath.Join(dir, "ledger.jsonl") }

// play starts everything and runs the scenario. It returns the highest token that the cluster has issued.
func (s *story) play(ctx context.Context, o options, dir string) (uint64, error) {
	status, err := s.cluster.open(ctx)
	if err != nil {
		return 0, err
	}
	s.tell("three nodes are up: %s leads, term %d", status.GetLeaderId(), status.GetTerm())
	ledger, url, err := startLedger(o, dir)
	if err != nil {
		return 0, err
	}
	defer ledger.end(5 * time.Second)
	if o.noFencing {
		s.tell("the ledger does not compare tokens (--no-fencing)")
	}
	reports := make(chan report)
	defer func() {
		go func() {
			for range reports { // so that no worker blocks on its last report
			}
		}()
		for _, w := range s.workers {
			w.kill()
		}
	}()
	started := &workers{
		bin: o.bin, dir: dir, endpoints: endpoints(s.cluster.nodes), ledger: url, requests: o.requests,
		size: o.workers, victim: s.pause.worker, signalAfter: time.Second,
	}
	if err := s.startWorkers(ctx, started, reports); err != nil {
		return 0, err
	}
	if err := s.run(ctx, reports); err != nil {
		return 0, err
	}
	return s.waitForNodes(ctx)
}

// startWorkers starts the workers, and lets them begin once all are ready.
func (s *story) startWorkers(ctx context.Context, c *workers, reports chan report) error {
	for k := 1; k <= c.size; k++ {
		w, err := c.start(k, reports)
		if err != nil {
			return err
		}
		s.workers[k] = w
		s.alive++
	}
	for range c.size {
		select {
		case r := <-reports:
			if r.Kind != demo.Ready {
				return fmt.Errorf("worker %d did not start: %v\n%s", r.Worker, r.err, tail(s.workers[r.Worker].log, 5))
			}
		case <-ctx.Done():
			return fmt.Errorf("the workers did not start: %w", context.Cause(ctx))
		}
	}
	s.tell("%d workers begin with %d requests", c.size, s.total)
	for _, w := range s.workers {
		if err := w.say("start"); err != nil {
			return err
		}
	}
	return nil
}

// waitForNodes waits until all nodes, including the killed one, are up again.
func (s *story) waitForNodes(ctx context.Context) (uint64, error) {
	status, err := s.cluster.await(ctx, allReachable)
	return status.GetToken(), err
}

// startLedger starts the ledger and returns its URL.
func startLedger(o options, dir string) (*process, string, error) {
	cmd := exec.Command(filepath.Join(o.bin, "demo", "ledger"),
		"--journal", journalPath(dir), fmt.Sprintf("--no-fencing=%t", o.noFencing))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	logPath := filepath.Join(dir, "ledger.log")
	ledger, err := start("ledger", cmd, logPath)
	if err != nil {
		return nil, "", err
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		ledger.kill()
		return nil, "", fmt.Errorf("the ledger did not start: %w\n%s", err, tail(logPath, 5))
	}
	return ledger, strings.TrimSpace(url), nil
}
