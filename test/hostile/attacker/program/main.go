package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/quorumlock/quorumlock/test/hostile/attacker"
)

func main() {
	runtime.GOMAXPROCS(1) // a remote attacker would not take the nodes' cores
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "attacker:", err)
		os.Exit(1)
	}
}

func run() error {
	var plan attacker.Plan
	if err := json.Unmarshal([]byte(os.Args[len(os.Args)-1]), &plan); err != nil {
		return fmt.Errorf("the argument has to be a plan: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	out := json.NewEncoder(os.Stdout)
	return attacker.Run(ctx, plan, func(r attacker.Report) { _ = out.Encode(r) })
}
