//go:build linux

package operations

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/manual"
	"github.com/quorumlock/quorumlock/test/netns"
	"github.com/quorumlock/quorumlock/test/process"
)

// bound is how long the whole document may take, on a machine that is busy.
const bound = 4 * time.Minute

// TestOperations runs all commands of docs/OPERATIONS.md in their order, on four hosts and that of the operator.
func TestOperations(t *testing.T) {
	if err := unable(); err != nil {
		if os.Getenv("QUORUMLOCK_CHECK") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir := t.TempDir()
	programs, err := process.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	h, err := start(t.TempDir(), string(programs), "host1", "host2", "host3", "host4")
	t.Cleanup(func() {
		if err := h.stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	manual.Run(t, "../../docs/OPERATIONS.md", manual.Shell{
		Env:   []string{"PATH=" + h.tools() + ":" + string(programs) + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + h.dir},
		Enter: h.enter(operator), Bound: bound,
	})
}

// unable returns what is missing on this machine.
func unable() error {
	if err := netns.Unable(); err != nil {
		return err
	}
	for _, program := range []string{"unshare", "nsenter", "tar", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			return err
		}
	}
	filesystems, err := os.ReadFile("/proc/filesystems")
	if err == nil && !strings.Contains(string(filesystems), "\toverlay\n") {
		err = errors.New("the kernel has no overlayfs")
	}
	return err
}
