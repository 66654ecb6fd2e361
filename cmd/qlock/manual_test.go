//go:build linux

package main_test

import (
	"os"
	"path/filepath"
	"testing"

	"strings"

	"github.com/quorumlock/quorumlock/test/manual"
	"github.com/quorumlock/quorumlock/test/ports"
)

// TestExamplesOfAccess runs the examples of docs/ACCESS.md with the programs. Only the ports differ.
func TestExamplesOfAccess(t *testing.T) {
	qlock := binary(t, "qlock")
	documented := []string{
		"127.0.0.1:7400", "127.0.0.1:7401", "127.0.0.1:7402", "127.0.0.1:7410", "127.0.0.1:7411", "127.0.0.1:7412",
		"127.0.0.1:7420", "127.0.0.1:7421", "127.0.0.1:7422",
	}
	var pairs []string
	for i, addr := range ports.For(t, len(documented)) {
		pairs = append(pairs, documented[i], addr)
	}
	env := cleanEnv("PATH="+filepath.Dir(qlock)+":"+os.Getenv("PATH"), "XDG_CONFIG_HOME="+t.TempDir())
	manual.Run(t, "../../docs/ACCESS.md", manual.Shell{Replace: strings.NewReplacer(pairs...), Env: env})
}
