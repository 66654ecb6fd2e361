package upgrade_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

var record = flag.Bool("record", false, "write the fixtures of the present feature level, and run no other test")

// full selects the long versions of the tests.
var full = os.Getenv("QUORUMLOCK_CHECK") == "1"

// scratch is the directory for the programs under test.
var scratch string

func TestMain(m *testing.M) {
	flag.Parse()
	if *record {
		_ = flag.Set("test.run", "^TestRecord$")
	}
	var err error
	if scratch, err = os.MkdirTemp("", "quorumlock-upgrade-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(scratch)
		os.Exit(code)
	}))
}
