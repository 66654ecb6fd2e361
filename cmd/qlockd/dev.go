package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/server"
)

// prepareDev makes cfg the configuration of a temporary node if --dev is set. remove deletes what
// prepareDev created; it is never nil.
func prepareDev(c *cli.Context, cfg *server.Config) (remove func(), err error) {
	remove = func() {}
	if !c.Bool("dev") {
		return remove, nil
	}
	for _, flag := range []string{"data-dir", "cluster", "join"} {
		if c.String(flag) != "" {
			return remove, usage(fmt.Errorf("--dev makes its own --%s: leave that out, or leave out --dev", flag))
		}
	}
	if cfg.ID == "" {
		cfg.ID = "dev"
	}
	dir, err := os.MkdirTemp("", "qlockd-dev-")
	if err != nil {
		return remove, fmt.Errorf("--dev needs a temporary directory: %w", err)
	}
	cfg.DataDir = dir
	return func() { _ = os.RemoveAll(dir) }, nil
}
