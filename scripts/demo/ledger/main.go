package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	journal := flag.String("journal", "ledger.jsonl", "append-only `file` of everything that happened")
	addr := flag.String("addr", "127.0.0.1:0", "`address` to listen on; port 0 takes a free one")
	noFencing := flag.Bool("no-fencing", false, "take stale tokens too")
	flag.Parse()
	log.SetFlags(0)
	log.SetPrefix("ledger: ")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addr, *journal, !*noFencing); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends. It prints its URL once it listens.
func run(ctx context.Context, addr, path string, fencing bool) error {
	journal, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer journal.Close()
	ledger, err := openLedger(journal, fencing)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: ledger.handler(), ReadHeaderTimeout: 5 * time.Second}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	fmt.Printf("http://%s\n", listener.Addr())
	if err := server.Serve(listener); err != http.ErrServerClosed {
		return err
	}
	return journal.Close()
}
