package auditlog

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
)

// TestSizeOfAFile verifies that only a file that others have truncated counts as truncated, and only once.
func TestSizeOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	must(t, os.WriteFile(path, []byte(`{"kind":"OPE`), 0o600)) // cut by a crash
	f, _, err := openFile(path)
	must(t, err)
	want := func(when string, truncated bool) {
		t.Helper()
		if moved, got := f.replaced(); moved || got != truncated {
			t.Errorf("%s: moved %v, truncated %v", when, moved, got)
		}
	}
	want("after a line was removed", false)
	if _, err := f.write([]byte("a line\n")); err != nil {
		t.Fatal(err)
	}
	want("after a line was written", false)
	must(t, os.Truncate(path, 3))
	want("after it was truncated", true)
	want("the next time", false)
	must(t, f.close())
	if err := f.close(); err == nil {
		t.Error("a file that cannot be synced is closed without an error")
	}
}

// TestFilesThatCannotBeResumed verifies that a log is not opened if the end of its file cannot be read or completed.
func TestFilesThatCannotBeResumed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	must(t, os.WriteFile(path, []byte("of another program"), 0o600))
	broken := errors.New("broken")
	for what, flags := range map[string]int{"closed": -1, "not readable": os.O_WRONLY, "not writable": os.O_RDONLY} {
		f, err := os.OpenFile(path, max(flags, 0), 0)
		must(t, err)
		if flags < 0 {
			must(t, f.Close())
		}
		o := &file{path: path, f: f, appendTo: func([]byte) (int, error) { return 0, broken }}
		if _, err := o.resume(); err == nil || what == "not writable" != errors.Is(err, broken) {
			t.Errorf("%s: %v", what, err)
		}
		_ = f.Close()
	}
}

// TestMetricsAreRegisteredOnce verifies that a log does not start without its metrics.
func TestMetricsAreRegisteredOnce(t *testing.T) {
	var text bytes.Buffer
	cfg := config("", &text)
	l, err := Open(cfg)
	must(t, err)
	closeLog(t, l)
	if _, err := Open(cfg); err == nil {
		t.Error("the metrics are registered twice")
	}
}

// TestTextsThatAreNotUTF8 verifies that a record that cannot be encoded is reported and left out, and that a caller is.
func TestTextsThatAreNotUTF8(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, text := opened(t, path)
	bad := records(2, 2)
	bad[0].Reason = "\xff"
	l.Append("c1", append(append(records(1, 1), bad...), records(3, 3)...))
	l.Deny(denial("\xff", ""))
	closeLog(t, l)
	if got := kinds(t, path); got != "OPENED after 0, 1, MISSING 1-3, 3, DENIED after 3" {
		t.Errorf("the file has %s", got)
	}
	if n := valueOf(t, l.metrics.errors); n != 1 || !strings.Contains(text.String(), "audit record 2") {
		t.Errorf("%v errors: %s", n, text)
	}
}

// TestSuppressedDenialsAreLogged verifies that the log says how many denials it left out, if there were any.
func TestSuppressedDenialsAreLogged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l, text := opened(t, "")
		for range 4 {
			l.Deny(denial("bob", ""))
		}
		first := text.String()
		time.Sleep(denialInterval)
		l.Deny(denial("bob", ""))
		closeLog(t, l)
		second := strings.TrimPrefix(text.String(), first)
		if strings.Contains(first, "suppressed") || !strings.Contains(second, "suppressed=3") {
			t.Errorf("logged %s, then %s", first, second)
		}
	})
}

// withBadDisk starts a log whose disk fails from now on, and returns what it writes to the log of the node.
func withBadDisk(t *testing.T, path string) (*Log, *badDisk, *bytes.Buffer) {
	t.Helper()
	text := &bytes.Buffer{}
	l, err := newLog(config(path, text))
	must(t, err)
	f, at, err := openFile(path)
	must(t, err)
	disk := &badDisk{file: f}
	f.appendTo = disk.append
	l.start(f, at)
	synctest.Wait()
	disk.set(true)
	return l, disk, text
}

// TestRotatedWhileTheDiskFails renames a file that cannot be written. The line that failed is written to the new file,
// from its beginning.
func TestRotatedWhileTheDiskFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	bubble.Test(t, func(t *testing.T) {
		l, _, _ := withBadDisk(t, path)
		l.Append("c1", records(1, 3))
		synctest.Wait()
		must(t, os.Rename(path, path+".1"))
		time.Sleep(2 * retryInterval)
		synctest.Wait()
		closeLog(t, l)
	})
	wantIDs(t, acts(t, path), 3)
}

// TestClosedWhileTheDiskHangs verifies that Close waits no longer than its context allows, and says so.
func TestClosedWhileTheDiskHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	var text bytes.Buffer
	l, err := newLog(config(path, &text))
	must(t, err)
	f, at, err := openFile(path)
	must(t, err)
	hung := make(chan struct{})
	f.appendTo = func(line []byte) (int, error) { <-hung; return len(line), nil }
	l.start(f, at)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Close(ctx); !errors.Is(err, ctx.Err()) {
		t.Errorf("closed with %v", err)
	}
	close(hung)
	closeLog(t, l)
}

// TestForeignLines verifies that no line of another program is taken for one of this package.
func TestForeignLines(t *testing.T) {
	for _, text := range []string{`{"afterId":"7"}`, `{"kind":"OPENED"}`, `{"kind":"ACT","afterId":"7"}`, `7`, `x`, ``} {
		if at, ok := parse([]byte(text)); ok {
			t.Errorf("%s is a line after %v", text, at)
		}
	}
	if at, ok := parse([]byte(`{"kind":"OPENED","clusterId":"c1","afterId":"7"}`)); !ok || at != (position{"c1", 7, 0}) {
		t.Errorf("%v, %v", at, ok)
	}
}
