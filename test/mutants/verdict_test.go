package mutants

import (
	"regexp"
	"strings"
	"testing"
)

// outcome is how a try ended.
type outcome string

const (
	passed   outcome = "passed"
	failed   outcome = "failed"
	hung     outcome = "hang"
	panicked outcome = "panic"
	// lost means that it ended without any output of the tests.
	lost outcome = "lost"
)

var (
	// said matches a line that a test logs, after its position.
	said = regexp.MustCompile(`(?m)^ +\w+_test\.go:\d+: (.*)$`)
	// stuck matches what the runtime and the testing package print about tests that hang.
	stuck = regexp.MustCompile(`(?m)^(?:panic: test timed out after .*|panic: deadlock: .*|fatal error: all goroutines are asleep.*)$`)
	crash = regexp.MustCompile(`(?m)^(?:panic: |fatal error: |\tpanic: ).*$`)
)

// verdict returns how a run of a test binary ended, and the first line that explains it. A failure that a
// test reported counts before what happened to the process afterwards.
func verdict(success bool, output string) (outcome, string) {
	if success {
		return passed, ""
	}
	if _, failure, ok := strings.Cut("\n"+output, "\n--- FAIL: "); ok {
		report, _, _ := strings.Cut(failure, "\npanic: ")
		if line := said.FindStringSubmatch(report); line != nil {
			return failed, strings.TrimSpace(line[1])
		}
	}
	if line := stuck.FindString(output); line != "" {
		return hung, line
	}
	if line := crash.FindString(output); line != "" {
		return panicked, strings.TrimSpace(line)
	}
	last := strings.TrimSpace(output)
	return lost, last[strings.LastIndexByte(last, '\n')+1:]
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		success bool
		output  string
		want    outcome
		why     string
	}{
		{true, "PASS\n", passed, ""},
		{false, "--- FAIL: TestX (0.01s)\n    --- FAIL: TestX/a (0.00s)\n        x_test.go:12: held by two\n        x_test.go:13: more\nFAIL\n", failed, "held by two"},
		{false, "chatter\n--- FAIL: TestX (1.00s)\n    x_test.go:7: held by two\npanic: deadlock: main bubble goroutine has exited\n", failed, "held by two"},
		{false, "panic: test timed out after 1m0s\n\trunning tests:\n\t\tTestX (1m0s)\n", hung, "panic: test timed out after 1m0s"},
		{false, "--- FAIL: TestX (0.00s)\npanic: deadlock: all goroutines in bubble are blocked [recovered, repanicked]\n", hung, "panic: deadlock: all goroutines in bubble are blocked [recovered, repanicked]"},
		{false, "fatal error: all goroutines are asleep - deadlock!\n", hung, "fatal error: all goroutines are asleep - deadlock!"},
		{false, "--- FAIL: TestX (0.00s)\npanic: runtime error: index out of range\n\ngoroutine 8\n\tx_test.go:12: +0x1\n", panicked, "panic: runtime error: index out of range"},
		{false, "chatter\nsignal: killed\n", lost, "signal: killed"},
		{false, "", lost, ""},
	} {
		if got, why := verdict(c.success, c.output); got != c.want || why != c.why {
			t.Errorf("%q: %s because of %q, want %s because of %q", c.output, got, why, c.want, c.why)
		}
	}
}
