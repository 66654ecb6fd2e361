package process_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/test/process"
)

// programs are the binaries under test, built once.
var programs process.Programs

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "quorumlock-process-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	leave := func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}
	if programs, err = process.Build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		leave(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(leave))
}
