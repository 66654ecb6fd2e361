package hostile

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/test/process"
)

// qlockd is the program under test, attackerProgram that of package attacker. Both are built once, without
// the race detector.
var qlockd, attackerProgram string

// atOnce is the number of parallel tests: nearly all of them wait.
const atOnce = "100"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "quorumlock-hostile-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	leave := func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}
	if _, err := process.Build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		leave(1)
	}
	qlockd = filepath.Join(dir, "qlockd")
	attackerProgram = filepath.Join(dir, "attacker")
	if out, err := exec.Command("go", "build", "-o", attackerProgram, "./attacker/program").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the attacker: %v\n%s", err, out)
		leave(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(leave))
}
