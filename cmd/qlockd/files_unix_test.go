//go:build unix

package main

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRaiseFileLimit checks that the limit of open files is raised as far as allowed, and that a limit that
// is too low is logged.
func TestRaiseFileLimit(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil || before.Max > 1<<30 || before.Max < 512 {
		t.Skip("no limit of open files to raise: ", before, err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &before) }()
	for _, test := range []struct {
		soft   uint64
		wanted int
		warns  bool
	}{
		{before.Max - 10, int(before.Max), false},
		{before.Max - 10, int(before.Max) + 1, true},
		{before.Max, int(before.Max), false},
	} {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: test.soft, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		warning := raiseFileLimit(test.wanted)
		var after unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &after); err != nil || after.Cur != before.Max {
			t.Errorf("the limit is %d, want %d, %v", after.Cur, before.Max, err)
		}
		if warns := strings.Contains(warning, "fewer files"); warns != test.warns {
			t.Errorf("%d files: %q", test.wanted, warning)
		}
	}
}
