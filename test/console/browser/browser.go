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

// find returns the path of Chromium. If there is none, it installs Debian's package if it may.
func find(mayInstall bool) (string, error) {
	if path, err := exec.LookPath("chromium"); err == nil || !mayInstall {
		return path, err
	}
	if err := install("chromium", "fonts-dejavu-core"); err != nil {
		return "", errors.Join(errMissing, err)
	}
	return exec.LookPath("chromium")
}

// install installs packages of Debian.
func install(packages ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	for _, args := range [][]string{{"update"}, append([]string{"install", "-y", "--no-install-recommends"}, packages...)} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get: %w\n%s", err, out)
		}
	}
	return nil
}

var found = sync.OnceValues(func() (string, error) { return find(os.Getenv("QUORUMLOCK_CHECK") == "1") })

// Browser is a running Chromium with a profile of its own.
type Browser struct{ ctx context.Context }

// Start starts Chromium, which ends with the test. Without Chromium, the test is skipped, or fails with
// QUORUMLOCK_CHECK=1 if it cannot be installed.
func Start(t testing.TB) *Browser {
	t.Helper()
	return start(t, locate(t))
}

// locate returns the path of Chromium.
func locate(t testing.TB) string {
	t.Helper()
	path, err := found()
	if err != nil {
		missing(t, errors.Join(errMissing, err))
	}
	return path
}

// missing skips the test because of something that is not installed, or fails it in a complete check.
func missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("QUORUMLOCK_CHECK") == "1" {
		t.Fatal(err)
	}
	t.Skip(err)
}

func start(t testing.TB, path string, more ...chromedp.ExecAllocatorOption) *Browser {
	t.Helper()
	options := append([]chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.Headless, chromedp.DisableGPU, chromedp.IgnoreCertErrors, chromedp.NoFirstRun,
		chromedp.NoDefaultBrowserCheck, chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true),
	}, more...)
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
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
