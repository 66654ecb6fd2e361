package manual

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// example is a block of commands and, if the next block shows it, their output.
type example struct {
	commands, shows string
	line            int
}

// examples returns the examples of a document, by the lines of their blocks.
func examples(text string) (found []example) {
	var block *string
	for i, line := range strings.Split(text, "\n") {
		switch {
		case line == "```sh" || line == "<!-- sh":
			found = append(found, example{line: i + 1})
			block = &found[len(found)-1].commands
		case (line == "```json" || line == "```text") && len(found) > 0:
			block = &found[len(found)-1].shows
		case strings.HasPrefix(line, "```") || line == "-->":
			block = nil
		case block != nil:
			*block += line + "\n"
		}
	}
	return found
}

// matches reports whether the output is the one shown.
func (e example) matches(printed string) bool {
	parts := strings.Split(bare(e.shows), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(bare(printed))
}

func bare(s string) string { return strings.Join(strings.Fields(s), "") }

// fence separates the outputs of the examples.
const fence = "=====end of example====="

// Shell is where examples run.
type Shell struct {
	Env []string
	// Replace maps what the document says to what is used instead: the addresses. It may be nil.
	Replace *strings.Replacer
	// Enter is a command that runs another elsewhere, with its arguments. Without one, bash runs in an empty directory.
	Enter []string
	// Bound is how long all examples together may take, two minutes if it is 0.
	Bound time.Duration
}

// Run runs the examples of a document and checks what each prints on both outputs. It skips the test without bash.
func Run(t *testing.T, path string, in Shell) {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash here")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := examples(string(text))
	if len(all) == 0 {
		t.Fatalf("%s has no examples", path)
	}
	out, err := in.execute(t, bash, script(all, in.Replace))
	printed := strings.Split(out, fence+"\n")
	if err != nil {
		t.Errorf("%v after %d of %d examples: %s", err, len(printed)-1, len(all), printed[len(printed)-1])
	}
	for i, e := range all {
		t.Run(fmt.Sprintf("line %d", e.line), func(t *testing.T) {
			if i >= len(printed)-1 {
				t.Fatal("it was not reached")
			}
			t.Logf("%s\n%s", e.commands, printed[i])
			if !e.matches(printed[i]) {
				t.Errorf("the document shows\n%s\nbut this was printed:\n%s", e.shows, printed[i])
			}
		})
	}
}

// script returns the examples as one script, which ends what it has started.
func script(all []example, replace *strings.Replacer) string {
	var s strings.Builder
	s.WriteString("set -eu\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n")
	for _, e := range all {
		commands := e.commands
		if replace != nil {
			commands = replace.Replace(commands)
		}
		s.WriteString(commands + "echo '" + fence + "'\n")
	}
	return s.String()
}

func (in Shell) execute(t *testing.T, bash, script string) (string, error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), cmp.Or(in.Bound, 2*time.Minute))
	defer stop()
	var out bytes.Buffer
	command := slices.Concat(in.Enter, []string{bash, "--norc", "-c", script})
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = t.TempDir(), in.Env
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	return out.String(), err
}
