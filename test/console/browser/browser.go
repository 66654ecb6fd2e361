package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

const (
	// startTimeout bounds the start of Chromium, on a machine that is busy.
	startTimeout = time.Minute
	// installTimeout bounds the installation of Debian's package.
	installTimeout = 10 * time.Minute
)

// errMissing is returned where there is no Chromium.
var errMissing = errors.New("there is no Chromium on this machine: install Debian's package chromium")

// find returns the path of Chromium. With install, it installs Debian's package if there is none.
func find(install bool) (string, error) {
	if path, err := exec.LookPath("chromium"); err == nil || !install {
		return path, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"}} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: apt-get: %w\n%s", errMissing, err, out)
		}
	}
	return exec.LookPath("chromium")
}

var found = sync.OnceValues(func() (string, error) { return find(os.Getenv("QUORUMLOCK_CHECK") == "1") })

// Browser is a running Chromium with a profile of its own.
type Browser struct{ ctx context.Context }

// Start starts Chromium, which ends with the test. Without Chromium, the test is skipped, or fails with
// QUORUMLOCK_CHECK=1 if it cannot be installed.
func Start(t testing.TB) *Browser {
	t.Helper()
	path, err := found()
	switch {
	case err != nil && os.Getenv("QUORUMLOCK_CHECK") == "1":
		t.Fatal(err)
	case err != nil:
		t.Skip(errMissing)
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.Headless, chromedp.DisableGPU, chromedp.IgnoreCertErrors, chromedp.NoFirstRun,
		chromedp.NoDefaultBrowserCheck, chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true))
	t.Cleanup(end)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	starting := time.AfterFunc(startTimeout, cancel)
	defer starting.Stop()
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal("start Chromium: ", err)
	}
	return &Browser{ctx}
}
