package suites_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/test/redis/system"
)

// suiteTimeout bounds one run of a suite, including its compilation.
const suiteTimeout = 5 * time.Minute

// attempts is how often a suite may run until all cases pass. Some of their TTLs are 20 to 100 ms, which a busy machine
// exceeds.
const attempts = 5

// suite is the tests of a library.
type suite struct {
	module string
	// prepare changes a copy of the module so that it uses the servers.
	prepare func(t *testing.T, dir string, to servers)
	// packages are the packages with tests that need a server.
	packages string
	// cases is the number of cases, so that a suite that does not run is noticed.
	cases int
	// cannot are the cases that cannot pass, with the reasons.
	cannot map[string]string
}

// servers is where a suite finds Redis.
type servers struct {
	addrs     []string
	databases int // of each
}

var suites = []suite{{
	module:   "github.com/go-redsync/redsync/v4",
	prepare:  replaceServers,
	packages: ".",
	cases:    95,
	cannot:   map[string]string{},
}, {
	module:   "github.com/bsm/redislock",
	prepare:  replaceAddress,
	packages: ".",
	cases:    17,
	cannot: map[string]string{
		"TestLock_Release_not_own": "overwrites a held lock with another value, and without a TTL",
		"TestLock_Refresh_expired": "acquires with a TTL of 5 ms: the shortest is 10 ms",
		"TestLock_Release_expired": "acquires with a TTL of 5 ms: the shortest is 10 ms",
	},
}}

// TestSuites runs the suites against three nodes, whose names have prefixes of their own: together they have as many
// databases as redsync starts servers. A default TTL lets redsync's tests occupy keys without a TTL.
func TestSuites(t *testing.T) {
	onlyInCheck(t)
	programs, err := process.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range suites {
		t.Run(s.module, func(t *testing.T) {
			c := system.StartCluster(t, programs, prefixes())
			to := servers{c.Addrs(), 16}
			s.run(t, to, s.cannot)
			for name := range s.cannot {
				if err := s.fails(t, to, name); err != nil {
					t.Errorf("%s is listed as a case that cannot pass: %v", name, err)
				}
			}
		})
	}
}

// TestSuitesOnRedis verifies that the suites pass on Redis.
func TestSuitesOnRedis(t *testing.T) {
	onlyInCheck(t)
	for _, s := range suites {
		t.Run(s.module, func(t *testing.T) {
			s.run(t, servers{[]string{system.StartServer(t).Addr}, system.Databases}, nil)
		})
	}
}

// prefixes returns the flags of the nodes.
func prefixes() map[string][]string {
	flags := map[string][]string{}
	for _, id := range []string{"n1", "n2", "n3"} {
		flags[id] = []string{"--redis-prefix", id + ":", "--redis-default-ttl", "1h"}
	}
	return flags
}

func onlyInCheck(t *testing.T) {
	t.Helper()
	if os.Getenv("QUORUMLOCK_CHECK") != "1" {
		t.Skip("make check has this, with QUORUMLOCK_CHECK=1: it takes minutes")
	}
}

// run runs all cases except those that cannot pass.
func (s suite) run(t *testing.T, to servers, cannot map[string]string) {
	t.Helper()
	dir := s.copy(t, to)
	args := []string{}
	if len(cannot) > 0 {
		args = append(args, "-skip", "^("+strings.Join(slices.Sorted(maps.Keys(cannot)), "|")+")$")
	}
	var passed int
	var failures string
	err := errors.New("not run")
	for attempt := 0; err != nil && attempt < attempts; attempt++ {
		passed, failures, err = test(t, dir, to, append(args, s.packages)...)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, failures)
	}
	if want := s.cases - len(cannot); passed != want {
		t.Errorf("%d cases passed, want %d", passed, want)
	}
}

// fails returns an error unless a case fails.
func (s suite) fails(t *testing.T, to servers, name string) error {
	t.Helper()
	passed, failures, err := test(t, s.copy(t, to), to, "-run", "^"+name+"$", s.packages)
	if passed > 0 || err == nil {
		return errors.New("it passes: remove it from the list")
	}
	if !strings.Contains(failures, "--- FAIL: "+name) {
		return fmt.Errorf("it did not run: %w\n%s", err, failures)
	}
	return nil
}

// copy makes a copy of the module that uses the servers.
func (s suite) copy(t *testing.T, to servers) (dir string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", s.module).Output()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "module")
	from := os.DirFS(strings.TrimSpace(string(out)))
	err = fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return errors.Join(err, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700))
		}
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		target := filepath.Join(dir, name)
		return errors.Join(os.MkdirAll(filepath.Dir(target), 0o700), os.WriteFile(target, text, 0o600))
	})
	if err != nil {
		t.Fatal(err)
	}
	s.prepare(t, dir, to)
	return dir
}

// replaceServers replaces the package that starts redis-server, and the ports of the servers, which systems use for
// outgoing connections.
func replaceServers(t *testing.T, dir string, _ servers) {
	t.Helper()
	shim, err := filepath.Abs("testdata/tempredis")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-replace", "github.com/stvp/tempredis="+shim)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	replace(t, dir, "51200", strconv.Itoa(freePorts(t, 48)))
}

// freePorts returns the first of n free ports, below those of test/ports.
func freePorts(t *testing.T, n int) (first int) {
	t.Helper()
	for range 100 {
		first = 12_000 + rand.IntN(3_000-n)
		if allFree(first, n) {
			return first
		}
	}
	t.Fatalf("no %d consecutive ports are free", n)
	return 0
}

func allFree(first, n int) bool {
	for port := first; port < first+n; port++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}

// replaceAddress replaces the address of the server.
func replaceAddress(t *testing.T, dir string, to servers) {
	t.Helper()
	replace(t, dir, "127.0.0.1:6379", to.addrs[0])
}

// replace replaces a text in the tests, which must have it.
func replace(t *testing.T, dir, old, now string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	replaced := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		replaced += bytes.Count(text, []byte(old))
		if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte(old), []byte(now)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if replaced == 0 {
		t.Fatalf("the tests do not have %q", old)
	}
}

// test runs go test in a directory. It returns how many cases passed, and the output of the others.
func test(t *testing.T, dir string, to servers, args ...string) (passed int, failures string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suiteTimeout)
	defer cancel()
	args = append([]string{"test", "-json", "-vet=off", "-count=1", "-mod=mod"}, args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SERVERS="+strings.Join(to.addrs, ","), "DATABASES="+strconv.Itoa(to.databases))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	passed, failures = outcomes(out)
	return passed, failures + stderr.String(), err
}

// outcomes reads the output of go test -json.
func outcomes(out []byte) (passed int, failures string) {
	outputs := map[string]string{}
	var failed strings.Builder
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			continue // not of a test, for example of the compiler
		}
		switch {
		case event.Action == "output":
			outputs[event.Test] += event.Output
		case event.Action == "pass" && event.Test != "":
			passed++
		case event.Action == "fail":
			failed.WriteString(outputs[event.Test])
		}
	}
	return passed, failed.String()
}
