package upgrade_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/test/process"
)

// root is the directory of the module.
var root = filepath.Join("..", "..")

// Versions by which the programs report themselves.
const (
	earlierVersion = "v0.0.1-earlier"
	presentVersion = "v0.0.2-present"
	nextVersion    = "v0.0.3-next"
)

// earlierLevel is the feature level of the earlier programs.
const earlierLevel = 1

func versioned(version string) string { return "-ldflags=-X main.version=" + version }

// present returns the present programs.
var present = sync.OnceValues(func() (process.Programs, error) {
	return process.Build(filepath.Join(scratch, "present"), versioned(presentVersion))
})

// next returns programs that support one feature level more, without anything new in it.
var next = sync.OnceValues(func() (process.Programs, error) {
	path, err := filepath.Abs(filepath.Join(root, "fsm", "level.go"))
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	raised := regexp.MustCompile(`(?m)^const Level = \d+$`).ReplaceAll(source, fmt.Appendf(nil, "const Level = %d", fsm.Level+1))
	if bytes.Equal(raised, source) {
		return "", fmt.Errorf("%s declares no level", path)
	}
	replaced := filepath.Join(scratch, "level.go")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: replaced}})
	if err != nil {
		return "", err
	}
	for file, data := range map[string][]byte{replaced: raised, filepath.Join(scratch, "overlay.json"): overlay} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return "", err
		}
	}
	return process.Build(filepath.Join(scratch, "next"), versioned(nextVersion), "-overlay", filepath.Join(scratch, "overlay.json"))
})

// built fails the test if programs could not be built.
func built(t *testing.T, build func() (process.Programs, error)) process.Programs {
	t.Helper()
	programs, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return programs
}

// earlier returns the programs of the commit in testdata/commit. They are built once, and kept in the user's cache like
// what the compiler keeps. Without that commit, as in a copy of the sources without their history, the test is skipped, or
// fails if the long versions of the tests were asked for.
func earlier(t *testing.T) process.Programs {
	t.Helper()
	commit := strings.TrimSpace(string(readFile(t, filepath.Join("testdata", "commit"))))
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = scratch
	}
	kept := filepath.Join(cache, "quorumlock-upgrade", commit+"-"+runtime.Version())
	if _, err := os.Stat(filepath.Join(kept, "qlockd")); err == nil {
		return process.Programs(kept)
	}
	if out, err := exec.Command("git", "-C", root, "cat-file", "-e", commit+"^{commit}").CombinedOutput(); err != nil {
		missing := fmt.Sprintf("commit %s, from which clusters are upgraded, is not here: git fetch --unshallow brings it (%v: %s)", commit, err, bytes.TrimSpace(out))
		if full {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	if err := buildCommit(t, commit, kept); err != nil {
		t.Fatal(err)
	}
	return process.Programs(kept)
}

// buildCommit builds the programs of a commit and moves them to a directory.
func buildCommit(t *testing.T, commit, to string) error {
	t.Helper()
	sources := t.TempDir()
	archive, err := exec.Command("git", "-C", root, "archive", commit).Output()
	if err != nil {
		return fmt.Errorf("read the sources of %s: %w", commit, err)
	}
	extract := exec.Command("tar", "-x", "-C", sources)
	extract.Stdin = bytes.NewReader(archive)
	if out, err := extract.CombinedOutput(); err != nil {
		return fmt.Errorf("extract the sources of %s: %w: %s", commit, err, out)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	unfinished, err := os.MkdirTemp(filepath.Dir(to), "unfinished-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(unfinished)
	if _, err := process.BuildFrom(sources, unfinished, versioned(earlierVersion)); err != nil {
		return err
	}
	return os.Rename(unfinished, to)
}
