package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/scripts/demo"
)

// workerProcess is one worker, as the driver sees it.
type workerProcess struct {
	*process
	number int
	stdin  io.Writer
	log    string
}

// report is an event of a worker, or its end.
type report struct {
	demo.Event
	at    time.Time
	ended bool
	err   error
}

// workers starts the workers of the demo.
type workers struct {
	bin, dir  string
	endpoints []string
	ledger    string
	requests  string
	size      int
	// victim is the worker that will be stopped; signalAfter is when it starts to look for an order at which
	// to stop.
	victim      int
	signalAfter time.Duration
}

// start starts worker number k. Its reports are sent to reports.
func (c *workers) start(k int, reports chan<- report) (*workerProcess, error) {
	args := []string{
		"--endpoints", strings.Join(c.endpoints, ","),
		"--ledger", c.ledger,
		"--requests", c.requests,
		"--worker", fmt.Sprint(k),
		"--of", fmt.Sprint(c.size),
	}
	if k == c.victim {
		args = append(args, "--signal-after", c.signalAfter.String())
	}
	cmd := exec.Command(filepath.Join(c.bin, "demo", "worker"), args...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, in := io.Pipe()
	cmd.Stdout = in
	log := filepath.Join(c.dir, fmt.Sprintf("worker%d.log", k))
	p, err := start(fmt.Sprintf("worker %d", k), cmd, log)
	if err != nil {
		return nil, err
	}
	w := &workerProcess{process: p, number: k, stdin: stdin, log: log}
	go func() {
		<-p.done // Wait returns after all standard output has been copied
		_ = in.Close()
	}()
	go w.listen(out, reports)
	return w, nil
}

// listen forwards the worker's reports, and finally its end.
func (w *workerProcess) listen(out io.Reader, reports chan<- report) {
	decoder := json.NewDecoder(out)
	for {
		var event demo.Event
		err := decoder.Decode(&event)
		if err == nil {
			reports <- report{Event: event, at: time.Now()}
			continue
		}
		if !errors.Is(err, io.EOF) {
			_, _ = io.Copy(io.Discard, out) // invalid output must not block the worker
		} else {
			err = nil
		}
		<-w.done
		reports <- report{Event: demo.Event{Worker: w.number}, at: time.Now(), ended: true, err: errors.Join(err, w.err)}
		return
	}
}

// say writes a line to the worker: to start, or to continue.
func (w *workerProcess) say(line string) error {
	_, err := io.WriteString(w.stdin, line+"\n")
	return err
}
