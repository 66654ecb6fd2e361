package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// unsetLease removes an earlier lease from the shell's environment.
const unsetLease = "unset QLOCK_LEASE QLOCK_NAME QLOCK_TOKEN"

// acquireVerb acquires a lock for a script, which then holds it without this program.
func acquireVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "acquire",
		Usage:     "acquire a lock for a script, until its TTL has passed",
		ArgsUsage: "NAME…",
		Description: "The lock remains held after this program exits, until its TTL has passed or it is\n" +
			"released. A shell script imports it into its environment:\n\n" +
			"   eval \"$(qlock acquire deploy --ttl 60s --export)\" || exit\n" +
			"   terraform apply; qlock extend; …\n" +
			"   qlock release\n\n" +
			"QLOCK_LEASE contains the hold and the secret that extends and releases it, QLOCK_TOKEN\n" +
			"the fencing token, QLOCK_NAME the lock. If the lock is not acquired, eval fails with\n" +
			"the exit code. --lease-file stores the secret in a file instead, which must not contain\n" +
			"a live lease. If this program is killed while it waits, its place ends within 5 s.\n" +
			"If possible, prefer qlock run: it ends the command before the lock is\n" +
			"lost.\n\n" +
			"Exit codes: 0 held, 75 not acquired, 69 no serving leader, 64 usage.",
		Flags: slices.Concat([]cli.Flag{
			&cli.DurationFlag{Name: "ttl", DefaultText: "15s", Usage: "hold the lock for `DURATION` after the grant or the last extension"},
			&cli.BoolFlag{Name: "export", DisableDefaultText: true, Usage: "print shell commands that set QLOCK_LEASE, QLOCK_NAME and QLOCK_TOKEN"},
			&cli.StringFlag{Name: "lease-file", Usage: "write the lease to `FILE`, readable by its owner only, instead of printing it"},
		}, waitFlags(), kindFlags(), holdFlags(), sessionFlags("the script's")),
		Action: func(c *cli.Context) error {
			req, err := leaseRequestOf(c)
			if err != nil {
				return err
			}
			return withService(c, dial, func(svc service) error { return acquireLease(c, svc, req) })
		},
	}
}

// leaseRequest is what acquire requests.
type leaseRequest struct {
	claim   claim
	secret  []byte
	session client.SessionOptions // of the implicit session
}

// leased is a granted lease.
type leased struct {
	lease
	token   uint64
	session uint64
	ttl     time.Duration
}

// leaseRequestOf returns the request that the command line describes.
func leaseRequestOf(c *cli.Context) (leaseRequest, error) {
	names := arguments(c)
	if len(names) == 0 {
		return leaseRequest{}, usagef("acquire needs a lock's name, as in qlock acquire deploy --ttl 60s")
	}
	if c.Bool("export") && (c.IsSet("lease-file") || c.String("output") != "table") {
		return leaseRequest{}, usagef("--export goes with neither --lease-file nor -o json: choose one")
	}
	ttl, err := ttlOf(c)
	if err != nil {
		return leaseRequest{}, err
	}
	req := leaseRequest{secret: newSecret()}
	if req.claim, err = claimOf(c, names); err != nil {
		return leaseRequest{}, err
	}
	req.session, err = sessionOptionsOf(c, script())
	req.session.TTL = ttl
	return req, err
}

// ttlOf returns --ttl in whole milliseconds, or 0 if it is absent.
func ttlOf(c *cli.Context) (time.Duration, error) {
	ttl := c.Duration("ttl").Truncate(time.Millisecond)
	if c.IsSet("ttl") && (ttl <= 0 || ttl > math.MaxUint32*time.Millisecond) {
		return 0, usagef("--ttl %v is no time that a lock can be held for", c.Duration("ttl"))
	}
	return ttl, nil
}

// script returns the name of the program that called this one and holds the lease.
func script() string {
	name, err := os.ReadFile("/proc/" + strconv.Itoa(os.Getppid()) + "/comm")
	if text := strings.TrimSpace(string(name)); err == nil && text != "" {
		return text
	}
	return "acquire"
}

// acquireLease acquires a lease and hands it over to the caller. If that fails, it releases the lease
// again.
func acquireLease(c *cli.Context, svc service, req leaseRequest) error {
	file, err := reserveLeaseFile(c.Context, c.String("lease-file"), svc, req)
	if err != nil {
		return withEndpoints(c, err)
	}
	if file != nil {
		defer file.file.Close()
	}
	got, err := waitForLease(c, svc, req)
	if err != nil {
		if file != nil && !errors.Is(err, client.ErrUncertain) {
			file.forget() // if uncertain, the lease may be held and the file has its secret
		}
		return err
	}
	if err = handOverUnlessSignalled(c, file, req, got); err != nil {
		giveUp(svc, req)
		if file != nil {
			file.forget()
		}
	}
	return err
}

// waitForLease waits as long as the request allows; a signal ends the wait. Finding a leader is bounded in
// any case.
func waitForLease(c *cli.Context, svc service, req leaseRequest) (leased, error) {
	bound := timeout(c, openTimeout)
	caught := make(chan os.Signal, 1)
	notify(caught, ending)
	defer signal.Stop(caught)
	ctx, cancel := context.WithCancel(c.Context)
	defer cancel()
	leading, stop := watchEndpoints(ctx, c, svc)
	err := leads(leading, svc, bound)
	stop()
	if err != nil {
		return leased{}, withEndpoints(c, err)
	}
	if req.claim.wait >= 0 {
		ctx, cancel = context.WithTimeout(ctx, req.claim.wait+bound)
		defer cancel()
	}
	type result struct {
		leased
		err error
	}
	results := make(chan result, 1)
	go func() {
		l, err := svc.AcquireLease(ctx, req)
		results <- result{l, err}
	}()
	select {
	case r := <-results:
		if r.err == nil {
			return r.leased, nil
		}
		if exitCode(r.err) == exitNoLeader {
			giveUp(svc, req)
		}
		return leased{}, withEndpoints(c, refused(req.claim, r.err))
	case sig := <-caught:
		cancel()
		<-results
		giveUp(svc, req)
		return leased{}, signalled(sig.(syscall.Signal))
	}
}

// leads returns once a leader answers.
func leads(ctx context.Context, svc service, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	_, err := svc.ListLocks(ctx, &wire.ListLocksRequest{PageSize: 1})
	return err
}

// giveUp releases a lease, or cancels its wait, that no script will use. If that fails, the lease ends with
// its TTL.
func giveUp(svc service, req leaseRequest) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = svc.ReleaseLease(ctx, req.secret, 0)
}

// leaseJSON is the output of acquire with -o json.
type leaseJSON struct {
	Locks   []string `json:"locks"`
	HoldID  string   `json:"holdId"`
	Token   string   `json:"token"`
	Session string   `json:"sessionId"`
	TTLMs   int64    `json:"ttlMs"`
	Lease   string   `json:"lease,omitempty"` // the secret; not with --lease-file
}

// handOverUnlessSignalled hands the lease over. A signal ends that: the output may be a pipe that is full, and the lease
// of a killed program would last for its TTL.
func handOverUnlessSignalled(c *cli.Context, file *leaseFile, req leaseRequest, got leased) error {
	caught := make(chan os.Signal, 1)
	notify(caught, ending)
	defer signal.Stop(caught)
	finished := make(chan error, 1)
	go func() { finished <- handOver(c, file, req, got) }()
	select {
	case err := <-finished:
		return err
	case sig := <-caught:
		return signalled(sig.(syscall.Signal))
	}
}

// handOver prints the lease, or writes it to a file.
func handOver(c *cli.Context, file *leaseFile, req leaseRequest, got leased) error {
	names := req.claim.names()
	if file != nil {
		record := leaseRecord{lease: got.lease, lock: names[0], ttl: got.ttl, until: time.Now().Add(got.ttl)}
		if err := file.write(record); err != nil {
			return failf(exitInternal, "write the lease: %w", err)
		}
	}
	if c.Bool("export") {
		_, err := fmt.Fprintf(c.App.Writer, "export %s=%s QLOCK_NAME=%s QLOCK_TOKEN=%d\n",
			leaseVariable, got.lease, shellQuote(strings.Join(names, "\n")), got.token)
		return err
	}
	answer := leaseJSON{Locks: names, HoldID: fmt.Sprint(got.hold), Token: fmt.Sprint(got.token),
		Session: fmt.Sprint(got.session), TTLMs: got.ttl.Milliseconds()}
	if file == nil {
		answer.Lease = got.lease.String()
	}
	return show(c, fields{answer}, func(w io.Writer) {
		fmt.Fprintf(w, "holding %s for %s, token %d\n", req.claim.what(), span(got.ttl), got.token)
		if file == nil {
			fmt.Fprintf(w, "%s=%s\n", leaseVariable, got.lease)
		}
	})
}

// exportFailure is the output of acquire --export when it fails. A shell would treat no output as success
// and keep the variables of an earlier lease.
func exportFailure(w io.Writer, code int) {
	fmt.Fprintf(w, "%s; (exit %d)\n", unsetLease, code)
}
