package disk_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/test/process"
)

// command matches the commands that a node advises its operator to run.
var command = regexp.MustCompile(`(?m)^ *((?:mv|qlock cluster) .*)$`)

// removal matches the command that repairs an identity file.
var removal = regexp.MustCompile(`(?m)^ *(rm .*)$`)

// TestDamagedFiles verifies that a node refuses to start on damaged files, and that following its advice
// repairs it.
func TestDamagedFiles(t *testing.T) {
	c := process.StartWith(t, programs, process.Options{Nodes: 3, Flags: []string{"--log-segment-bytes", "65536"}})
	s := fillSafe(t, c)
	s.await(100)
	victim := c.Others(c.Leader())[0]
	dir := c.DataDir(victim)
	c.Kill9(victim)
	older := filepath.Join(t.TempDir(), "older")
	run(t, "cp", "-a", dir, older)
	c.Restart(victim)
	s.await(20)
	c.AwaitAll()
	c.Terminate(victim)
	c.Restart(victim)
	s.await(20)
	c.Kill9(victim)
	sound := filepath.Join(t.TempDir(), "sound")
	run(t, "cp", "-a", dir, sound)
	for _, damage := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"a bit in every page of the log", func(t *testing.T) { flip(t, segments(t, dir)[0], 50, 4096) }},
		{"a bit in what was written last", func(t *testing.T) { flipLast(t, newest(t, dir)) }},
		{"the log cut off", func(t *testing.T) { cut(t, newest(t, dir), 2*4096) }},
		{"a part of the log gone", func(t *testing.T) { remove(t, newest(t, dir)) }},
		{"the log gone", func(t *testing.T) { remove(t, filepath.Join(dir, "log")) }},
		{"an older log", func(t *testing.T) { replaceBy(t, filepath.Join(older, "log"), filepath.Join(dir, "log")) }},
		{"a bit in every page of the votes", func(t *testing.T) { flip(t, filepath.Join(dir, "raft.db"), 2*4096+50, 4096) }},
		{"a bit in the newest transaction", func(t *testing.T) { flip(t, filepath.Join(dir, "raft.db"), 70, 4096) }},
		{"the votes cut off", func(t *testing.T) { cut(t, filepath.Join(dir, "raft.db"), 3*4096) }},
		{"the votes gone", func(t *testing.T) { remove(t, filepath.Join(dir, "raft.db")) }},
	} {
		t.Run(damage.name, func(t *testing.T) {
			run(t, "rm", "-rf", dir)
			run(t, "cp", "-a", sound, dir)
			damage.do(t)
			c.Restart(victim)
			ended(t, c, victim, "the data directory is damaged: ", dir, "qlock cluster remove "+victim, "qlock cluster add "+victim)
		})
	}
	replace(t, c, victim)
	c.AwaitAll()
	s.complete()
}

// TestDamagedIdentityFile verifies that following a node's advice about its identity file restores the node
// with all its state. A node can do without this file.
func TestDamagedIdentityFile(t *testing.T) {
	c := process.StartWith(t, programs, process.Options{Nodes: 3})
	s := fillSafe(t, c)
	s.await(20)
	victim := c.Others(c.Leader())[0]
	file := filepath.Join(c.DataDir(victim), "node.json")
	for name, damage := range map[string]func(t *testing.T){
		"a bit":           func(t *testing.T) { flip(t, file, 0, 1<<20) },
		"another node's":  func(t *testing.T) { run(t, "sed", "-i", "s/"+victim+"/n9/", file) },
		"cut off":         func(t *testing.T) { cut(t, file, 20) },
		"empty":           func(t *testing.T) { cut(t, file, 0) },
		"of later format": func(t *testing.T) { run(t, "sed", "-i", `s/"format": 1/"format": 9/`, file) },
	} {
		t.Run(name, func(t *testing.T) {
			c.Kill9(victim)
			damage(t)
			c.Restart(victim)
			ended(t, c, victim, "the identity file is damaged: ", file)
			log := c.Log(victim)
			advice := removal.FindAllStringSubmatch(log[strings.LastIndex(log, "\nqlockd: "):], -1)
			if len(advice) != 1 || command.MatchString(log[strings.LastIndex(log, "\nqlockd: "):]) {
				t.Fatalf("%s advises %q", victim, advice)
			}
			run(t, "sh", "-c", advice[0][1])
			c.Restart(victim)
			c.AwaitAll()
		})
	}
	t.Run("gone", func(t *testing.T) {
		c.Kill9(victim)
		remove(t, file)
		c.Restart(victim)
		c.AwaitAll()
	})
	s.complete()
}

// replace runs the commands that the node advised last. After them, it names one for clusters without a leader.
func replace(t *testing.T, c *process.Cluster, id string) {
	t.Helper()
	log := c.Log(id)
	found := command.FindAllStringSubmatch(log[strings.LastIndex(log, "\nqlockd: "):], -1)
	if len(found) != 4 || !strings.HasPrefix(found[3][1], "qlock cluster recover ") {
		t.Fatalf("%s names %d commands: %q", id, len(found), found)
	}
	move, remove, add := strings.Fields(found[0][1]), strings.Fields(found[1][1])[1:], strings.Fields(found[2][1])[1:]
	run(t, move[0], move[1:]...)
	qlock(t, c, remove)
	c.Restart(id)
	qlock(t, c, add)
}

func qlock(t *testing.T, c *process.Cluster, words []string) {
	t.Helper()
	args := append([]string{"--endpoints", strings.Join(c.Endpoints(), ",")}, words...)
	c.Await("qlock "+strings.Join(words, " "), process.WaitTimeout, func(ctx context.Context) error {
		_, err := programs.Qlock(ctx, args...)
		return err
	})
}

// segments returns the files of a node's log, oldest first.
func segments(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "log", "*.segment"))
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	return found
}

func newest(t *testing.T, dir string) string {
	t.Helper()
	all := segments(t, dir)
	return all[len(all)-1]
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func cut(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

func replaceBy(t *testing.T, from, to string) {
	t.Helper()
	remove(t, to)
	run(t, "cp", "-a", from, to)
}

// flipLast flips a bit in the last non-zero byte of a file.
func flipLast(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flip(t, path, len(bytes.TrimRight(content, "\x00"))-1, len(content))
}

// flip flips a bit at offset from, and again at intervals of every bytes.
func flip(t *testing.T, path string, from, every int) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := from; i < len(content); i += every {
		content[i] ^= 4
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}
