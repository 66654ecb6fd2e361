//go:build unix

package main

import (
	"os/exec"
	"syscall"
	"testing"
)

// TestGuard checks that a guard ends its group when its run is gone, and does not when it is dismissed.
func TestGuard(t *testing.T) {
	for name, test := range map[string]struct {
		leave func(g *guard)
		ends  bool
	}{"left": {(*guard).leave, true}, "dismissed": {(*guard).dismiss, false}} {
		cmd := exec.CommandContext(t.Context(), "sleep", "60")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		g := startGuard()
		if g == nil {
			t.Fatal("there is no guard")
		}
		g.take(group(cmd.Process.Pid))
		test.leave(g)
		if alive := group(cmd.Process.Pid).alive(); alive == test.ends {
			t.Errorf("%s: the command is alive: %v", name, alive)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	var none *guard // the guard could not be started
	none.take(nobody)
	none.dismiss()
	none.leave()
}
