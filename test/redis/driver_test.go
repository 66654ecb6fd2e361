package redis_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/redis/system"
)

const (
	// stepTimeout bounds one step of a program. Clients wait up to ten seconds for an answer.
	stepTimeout = 20 * time.Second
	// pollInterval is the interval between two tries of a step.
	pollInterval = 10 * time.Millisecond
)

// driver is a running program with one client library, connected to one address. Its first line has the version of the
// library. Then it reads one step from each line, and prints an outcome as a line of JSON:
//
//	acquire KEY TTL   tries once to acquire a lock; ok reports whether it did
//	held KEY          ok reports whether the lock acquired last is still held
//	extend KEY TTL    ok reports whether it was held; missing is true if the library has no such function
//	release KEY       ok reports whether it was held
//	ttl KEY           ttl is what remains
//	token KEY         token is the fencing token; missing is true on Redis. Only go-redis has this step
//
// TTLs are in milliseconds. An outcome with an error says that the step may or may not have been executed.
type driver struct {
	name     string
	version  string
	cmd      *exec.Cmd
	in       io.WriteCloser
	outcomes chan outcome // closed when the program has ended
}

// outcome is what a program prints.
type outcome struct {
	Version string `json:"version"`
	OK      bool   `json:"ok"`
	Missing bool   `json:"missing"`
	TTL     int64  `json:"ttl"`
	Token   uint64 `json:"token"`
	Error   string `json:"error"`
}

// errMissing is returned for steps that a library does not offer.
var errMissing = errors.New("the library has no such function")

// launch starts a program, which ends with the test.
func launch(t testing.TB, c client, at system.Entry) *driver {
	t.Helper()
	args := append(c.command(t), c.name, at.Addr)
	d := &driver{name: c.name + " at the " + at.Name, cmd: exec.Command(args[0], args[1:]...), outcomes: make(chan outcome)}
	d.cmd.Stderr = os.Stderr
	in, err := d.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.in = in
	go d.read(out)
	t.Cleanup(d.end)
	first, err := d.next()
	if err != nil {
		t.Fatal(err)
	}
	d.version = first.Version
	return d
}

func (d *driver) read(out io.Reader) {
	defer close(d.outcomes)
	for dec := json.NewDecoder(bufio.NewReader(out)); ; {
		var o outcome
		if dec.Decode(&o) != nil {
			return
		}
		d.outcomes <- o
	}
}

// end kills the program.
func (d *driver) end() {
	_ = d.cmd.Process.Kill() // it may have ended on its own
	for range d.outcomes {
	}
	_ = d.cmd.Wait() // the result is the signal
}

// next returns the next outcome. After an error, the program is of no more use.
func (d *driver) next() (outcome, error) {
	late := time.NewTimer(stepTimeout)
	defer late.Stop()
	select {
	case o, ok := <-d.outcomes:
		if !ok {
			return o, fmt.Errorf("%s: the program has ended", d.name)
		}
		return o, nil
	case <-late.C:
		_ = d.cmd.Process.Kill() // a late outcome would be taken for that of the next step
		return outcome{}, fmt.Errorf("%s: the program has not answered for %v", d.name, stepTimeout)
	}
}

// do executes a step.
func (d *driver) do(step, key string, ttl ...time.Duration) (outcome, error) {
	line := step + " " + key
	for _, ttl := range ttl {
		line += fmt.Sprint(" ", ttl.Milliseconds())
	}
	if _, err := fmt.Fprintln(d.in, line); err != nil {
		return outcome{}, fmt.Errorf("%s: %s: %w", d.name, line, err)
	}
	o, err := d.next()
	switch {
	case err != nil:
	case o.Missing:
		err = errMissing
	case o.Error != "":
		err = fmt.Errorf("%s: %s: %s", d.name, line, o.Error)
	}
	return o, err
}

// reconnected waits until the server answers again.
func (d *driver) reconnected(ctx context.Context, key string) error {
	err := until(ctx, func() (bool, error) { _, err := d.do("ttl", key); return true, err })
	if err != nil {
		return fmt.Errorf("reconnect: %w", err)
	}
	return nil
}

// until repeats a step until it returns true without an error.
func until(ctx context.Context, step func() (bool, error)) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		ok, err := step()
		if ok && err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("not within the deadline: %w", errors.Join(err, ctx.Err()))
		}
	}
}
