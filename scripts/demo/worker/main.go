package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/scripts/demo"
)

// options are the command line.
type options struct {
	endpoints   string
	ledger      string
	requests    string
	worker, of  int
	ttl         time.Duration
	signalAfter time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.endpoints, "endpoints", "127.0.0.1:7400", "client `addresses` of the cluster, separated by commas")
	flag.StringVar(&o.ledger, "ledger", "", "`URL` of the ledger")
	flag.StringVar(&o.requests, "requests", "scripts/demo/refunds.csv", "`file` of requests")
	flag.IntVar(&o.worker, "worker", 1, "which worker this is, from 1")
	flag.IntVar(&o.of, "of", 1, "how many workers there are")
	flag.DurationVar(&o.ttl, "ttl", 5*time.Second, "the session's TTL")
	flag.DurationVar(&o.signalAfter, "signal-after", 0,
		"from this `time` on, wait once between check and write, at an order that another worker is asked for too; 0 never")
	flag.Parse()
	log.SetFlags(0)
	log.SetPrefix(fmt.Sprintf("worker %d: ", o.worker))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, o options) error {
	requests, err := demo.ReadRequests(o.requests)
	if err != nil {
		return err
	}
	c, err := client.New(client.Config{Endpoints: strings.Split(o.endpoints, ","), Agent: "refund-worker"})
	if err != nil {
		return err
	}
	defer c.Close()
	driver := newDriver(o.worker)
	w := &worker{
		number: o.worker, client: c, ttl: o.ttl,
		ledger: demo.Ledger{URL: o.ledger}, report: driver.report,
	}
	if err := w.open(ctx); err != nil {
		return err
	}
	driver.report(demo.Event{Kind: demo.Ready})
	driver.wait()
	w.beforeWrite = driver.signalAt(demo.Contested(requests, o.worker, o.of), time.Now().Add(o.signalAfter), o.signalAfter > 0)
	if err := w.work(ctx, demo.Share(requests, o.worker, o.of)); err != nil {
		return err
	}
	return w.session.Close(ctx)
}

// work answers the requests one by one, none before it arrives.
func (w *worker) work(ctx context.Context, share []demo.Request) error {
	start := time.Now()
	for _, request := range share {
		select {
		case <-time.After(time.Until(start.Add(request.Arrival))):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := w.answer(ctx, request); err != nil {
			return fmt.Errorf("request %d, order %s: %w", request.Line, request.Order, err)
		}
	}
	return nil
}

// driver is the process that started this one: it reads reports and writes lines.
type driver struct {
	worker  int
	encoder *json.Encoder
	lines   *bufio.Reader
}

func newDriver(worker int) *driver {
	return &driver{worker: worker, encoder: json.NewEncoder(os.Stdout), lines: bufio.NewReader(os.Stdin)}
}

func (d *driver) report(event demo.Event) {
	event.Worker = d.worker
	if err := d.encoder.Encode(event); err != nil {
		log.Fatal(err) // the driver is gone
	}
}

// wait returns when the driver has written a line.
func (d *driver) wait() {
	if _, err := d.lines.ReadString('\n'); err != nil {
		log.Fatalf("the driver is gone: %v", err)
	}
}

// signalAt returns a hook that reports Checked and waits, at the first of the lines that is reached after the
// given time.
func (d *driver) signalAt(lines map[int]bool, from time.Time, wanted bool) func(demo.Request, uint64) {
	done := !wanted
	return func(request demo.Request, token uint64) {
		if done || !lines[request.Line] || time.Now().Before(from) {
			return
		}
		done = true
		d.report(demo.Event{Kind: demo.Checked, Line: request.Line, Order: request.Order, Token: token})
		d.wait()
	}
}
