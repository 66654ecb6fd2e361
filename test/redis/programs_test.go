package redis_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/process"
)

// full is set in "make check".
var full = os.Getenv("QUORUMLOCK_CHECK") == "1"

// installTimeout bounds the installation of packages.
const installTimeout = 5 * time.Minute

// built is the directory for what is built and installed once.
var built string

// nodePrograms are qlockd and qlock.
var nodePrograms process.Programs

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if built, err = os.MkdirTemp("", "quorumlock-redis-"); err == nil {
		defer os.RemoveAll(built)
		nodePrograms, err = process.Build(built)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// language is how programs in a language are run. prepare returns the command line without the arguments.
type language struct {
	name    string
	prepare func() ([]string, error)
}

var (
	goLanguage = language{"Go", sync.OnceValues(func() ([]string, error) {
		program := filepath.Join(built, "driver")
		return []string{program}, command(".", "go", "build", "-o", program, "./programs/go")
	})}
	// Debian's packages are for Debian's Python.
	python     = language{"Python", debian([]string{"/usr/bin/python3", "programs/python/driver.py"}, "python3-redis")}
	php        = language{"PHP", debian([]string{"php", "programs/php/driver.php"}, phpPackages...)}
	ruby       = language{"Ruby", debian([]string{"ruby", "programs/ruby/driver.rb"}, "ruby", "ruby-redis")}
	shell      = language{"shell", debian([]string{"bash", "programs/shell/driver.sh"}, "redis-tools")}
	javaScript = language{"JavaScript", sync.OnceValues(installJavaScript)}
)

var phpPackages = []string{"php-cli", "php-nrk-predis", "php-illuminate-cache", "php-illuminate-redis"}

// installJavaScript installs the locked versions into a copy of the program.
func installJavaScript() ([]string, error) {
	if _, err := exec.LookPath("npm"); err != nil {
		return nil, fmt.Errorf("install Node.js 20 or newer with npm: %w", err)
	}
	dir := filepath.Join(built, "javascript")
	if err := os.CopyFS(dir, os.DirFS("programs/javascript")); err != nil {
		return nil, err
	}
	return []string{"node", filepath.Join(dir, "driver.js")}, command(dir, "npm", "ci", "--no-audit", "--no-fund")
}

// installing is held while apt-get runs, since only one may.
var installing sync.Mutex

// debian returns a function that installs the packages that are missing, and returns the command line.
func debian(line []string, packages ...string) func() ([]string, error) {
	return sync.OnceValues(func() ([]string, error) {
		installing.Lock()
		defer installing.Unlock()
		if command(".", "dpkg-query", append([]string{"--show"}, packages...)...) == nil {
			return line, nil
		}
		args := append([]string{"install", "--yes", "--no-install-recommends"}, packages...)
		if err := command(".", "apt-get", args...); err != nil {
			return nil, fmt.Errorf("install %v as root: %w", packages, err)
		}
		return line, nil
	})
}

// command runs a command in a directory.
func command(dir, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, args, err, out)
	}
	return nil
}

// client is a client library, by the name that its program knows.
type client struct {
	name     string
	language language
}

// clients are all clients. Those in Go are tested always.
var clients = []client{
	{"go-redis", goLanguage},
	{"redsync", goLanguage},
	{"redislock", goLanguage},
	{"redis-py", python},
	{"redis-py, thread_local=False", python},
	{"ioredis", javaScript},
	{"node-redis", javaScript},
	{"redlock 4", javaScript},
	{"redlock 5", javaScript},
	{"simple-redis-mutex", javaScript},
	{"Predis", php},
	{"Laravel Cache::lock", php},
	{"ruby-redis", ruby},
	{"redis-cli", shell},
}

// chosen returns the clients to test.
func chosen() (all []client) {
	for _, c := range clients {
		if full || c.language.name == goLanguage.name {
			all = append(all, c)
		}
	}
	return all
}

// command returns the command line of the client's program.
func (c client) command(t testing.TB) []string {
	t.Helper()
	line, err := c.language.prepare()
	if err != nil {
		t.Fatal(err)
	}
	return append([]string(nil), line...)
}
