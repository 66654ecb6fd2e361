package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/internal/logqueue"
	"github.com/quorumlock/quorumlock/server"
)

const (
	// logBytes is the default of --log-buffer-bytes, and minLogBytes its minimum: it has room for the longest lines.
	logBytes    = 1 << 20
	minLogBytes = 64 << 10
	// lastWords is how long a node that ends may take to report why: nobody may read its log.
	lastWords = 2 * time.Second
	// hangUpTimeout is how long it may take to redirect its clients.
	hangUpTimeout = 250 * time.Millisecond
)

// serve runs the node until a signal arrives or the node halts.
func serve(c *cli.Context, stderr *logqueue.Queue) error {
	if err := applyFile(c); err != nil {
		return err
	}
	cfg, err := configure(c)
	if err != nil {
		return err
	}
	log, err := logTo(c, stderr)
	if err != nil {
		return err
	}
	cfg.Logger, cfg.LogDropped = log, stderr.Dropped
	if c.Bool("check-config") {
		return checkConfig(c, cfg)
	}
	removeDev, err := prepareDev(c, &cfg)
	if err != nil {
		return err
	}
	defer removeDev()
	if warning := raiseFileLimit(cfg.OpenFiles()); warning != "" {
		log.Warn("the limit of open files is too low", "detail", warning)
	}
	limitMemory(cfg.MemoryLimit)

	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	return run(cfg, stderr, signals, removeDev)
}

// run opens the node, waits until it should stop, and closes it.
func run(cfg server.Config, stderr *logqueue.Queue, signals <-chan os.Signal, removeDev func()) error {
	log := cfg.Logger
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	manager := newServiceManager(log)
	stop := make(chan struct{})
	go func() {
		log.Info("stopping", "signal", (<-signals).String())
		manager.stopping()
		close(stop)
		cancel()
		second := <-signals // the process may exit before that
		removeDev()
		fmt.Fprintf(stderr, "qlockd: ended at once by a second signal (%v)\n", second)
		stderr.Flush(hangUpTimeout)
		os.Exit(128 + int(second.(syscall.Signal)))
	}()

	var opened atomic.Pointer[server.Node]
	defer limitHeap(func() int64 {
		if node := opened.Load(); node != nil {
			return node.BufferBytes()
		}
		return 0
	})()
	node, err := server.Open(ctx, cfg)
	if err != nil {
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			return nil // a signal arrived before the node was open
		}
		return err
	}
	opened.Store(node)
	if cfg.AuditLog != "" {
		defer reopenOnHangup(node)()
	}
	at := node.Addrs()
	log.Info("serving", "node", cfg.ID, "client", at.Client, "peer", at.Peer, "http", at.HTTP, "health", node.HealthAddr(), "redis", node.RedisAddr(),
		"data_dir", cfg.DataDir, "tls", cfg.TLS.Cert != "", "peer_tls", cfg.PeerTLS.Cert != "", "version", cfg.Version)
	defer manager.serving(node.Condition)()

	select {
	case reason := <-node.Halted():
		// Nothing is closed: whatever made the node halt could block that too, and everything acknowledged
		// is on disk.
		time.AfterFunc(lastWords, func() { os.Exit(exitSoftware) })
		ctx, cancel := context.WithTimeout(ctx, hangUpTimeout)
		defer cancel()
		node.HangUp(ctx)
		return fmt.Errorf("%w: %w", errHalted, reason)
	case <-stop:
	}
	if err := node.Close(context.Background()); err != nil {
		return fmt.Errorf("stopped, though not cleanly: %w", err)
	}
	log.Info("stopped")
	return nil
}

// reopenOnHangup makes SIGHUP reopen the audit log, until end is called. Without it the signal ends the process.
func reopenOnHangup(node *server.Node) (end func()) {
	hangups, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-hangups:
				node.ReopenAuditLog()
			case <-ended:
				return
			}
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(ended)
	}
}
