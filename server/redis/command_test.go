package redis

import (
	"slices"
	"strings"
	"testing"
)

// TestTable walks all commands: each has an arity, a summary, a right and flags, is found in any letter case, refuses a
// wrong number of arguments, and leaves the connection usable.
func TestTable(t *testing.T) {
	rights := []string{rightNone, rightLock, rightFind, rightRead, rightRelease, rightScript}
	p := serve(t, nil)
	for i := range table {
		cmd := &table[i]
		if cmd.arity == 0 || cmd.run == nil || !strings.HasSuffix(cmd.summary, ".") && cmd.name != "auth" || !slices.Contains(rights, cmd.right) || len(cmd.flags) == 0 {
			t.Errorf("%s: the row is incomplete", cmd.name)
		}
		if keyed := cmd.first > 0; keyed != (cmd.right != rightNone && cmd.right != rightScript) {
			t.Errorf("%s has the right %q, and %d as its first key", cmd.name, cmd.right, cmd.first)
		}
		if find([]byte(strings.ToUpper(cmd.name))) != cmd {
			t.Errorf("%s is not found", cmd.name)
		}
		c := dial(t, p)
		few := max(cmd.arity, -cmd.arity) - 1
		if few > 0 {
			want := "-ERR wrong number of arguments for '" + cmd.name + "' command\r\n"
			if got := c.call(slices.Repeat([]string{cmd.name}, few)...); got != want {
				t.Errorf("%s with %d arguments: %q, want %q", cmd.name, few, got, want)
			}
		}
		if cmd.arity > 0 {
			if got := c.call(slices.Repeat([]string{cmd.name}, cmd.arity+1)...); !strings.HasPrefix(got, "-ERR wrong number") {
				t.Errorf("%s with %d arguments: %q", cmd.name, cmd.arity+1, got)
			}
		}
		if got := c.do("PING"); got != "+PONG\r\n" {
			t.Errorf("PING after %s: %q", cmd.name, got)
		}
	}
	seen := map[string]bool{}
	for i := range table {
		if seen[table[i].name] {
			t.Errorf("%s has two rows", table[i].name)
		}
		seen[table[i].name] = true
	}
	for _, name := range strings.Fields("set setnx get exists del unlink expire pexpire ttl pttl eval evalsha script delex delifeq wait ping echo select client info command hello quit reset role multi exec watch discard unwatch auth ql.lock ql.token ql.who") {
		if !seen[name] {
			t.Errorf("%s is missing", name)
		}
	}
}
