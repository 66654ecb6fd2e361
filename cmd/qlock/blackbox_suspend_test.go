//go:build linux

package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// state returns the letter that /proc has for the state of a process; T means stopped.
func state(pid string) string {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return ""
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	return string(fields[0])
}

// TestSuspendedBinaryDoesNotStopItsScript runs qlock in a script that is not a job of an interactive shell, so
// both share a process group. This is the case under a shell and in a session of its own. SIGTSTP to qlock
// stops qlock and its command, SIGCONT continues both, and the script keeps running.
func TestSuspendedBinaryDoesNotStopItsScript(t *testing.T) {
	ep := endpoint(t)
	for name, attr := range map[string]*syscall.SysProcAttr{"job": {Setpgid: true}, "session": {Setsid: true}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			forCommand, letCommand := gate(t)
			forScript, letScript := gate(t)
			script := exec.Command("/bin/sh", "-c", fmt.Sprintf(`
				%s run stop/%s -- /bin/sh -c 'echo $$ > %s/command; read x < %s; echo done > %s/done' &
				qlock=$!; echo $qlock > %s/qlock
				read x < %s; echo on > %s/script
				wait $qlock; echo $? > %s/code`,
				binary(t, "qlock"), name, dir, forCommand, dir, dir, forScript, dir, dir))
			script.Env = cleanEnv("QLOCK_ENDPOINTS=" + ep)
			script.SysProcAttr = attr
			if err := script.Start(); err != nil {
				t.Fatal(err)
			}
			group := script.Process.Pid
			t.Cleanup(func() {
				_ = syscall.Kill(-group, syscall.SIGKILL)
				_ = script.Wait()
			})
			command, qlock := line(t, filepath.Join(dir, "command")), line(t, filepath.Join(dir, "qlock"))
			pid, err := strconv.Atoi(qlock)
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(pid, syscall.SIGTSTP); err != nil {
				t.Fatal(err)
			}
			eventually(t, "qlock and its command are stopped", func() bool { return state(qlock) == "T" && state(command) == "T" })
			letScript()
			line(t, filepath.Join(dir, "script"))
			letCommand()
			if state(qlock) != "T" || state(command) != "T" {
				t.Errorf("they went on by themselves: %s, %s", state(qlock), state(command))
			}
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			line(t, filepath.Join(dir, "done"))
			if code := line(t, filepath.Join(dir, "code")); code != "0" {
				t.Errorf("exit code %s", code)
			}
		})
	}
}
