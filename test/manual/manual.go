package manual

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
		case line == "```sh":
			found = append(found, example{line: i + 1})
			block = &found[len(found)-1].commands
		case (line == "```json" || line == "```text") && len(found) > 0:
			block = &found[len(found)-1].shows
		case strings.HasPrefix(line, "```"):
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

// bound is how long all examples together may take.
const bound = 2 * time.Minute

// Run runs the examples of a document in an empty directory and checks what each prints on both outputs. replace
// maps what the document says to what is used instead: the addresses. It skips the test without bash.
func Run(t *testing.T, path string, replace *strings.Replacer, env []string) {
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
	out, err := execute(t, bash, script(all, replace), env)
	printed := strings.Split(out, fence+"\n")
	if err != nil {
		t.Errorf("%v after %d of %d examples: %s", err, len(printed)-1, len(all), printed[len(printed)-1])
	}
	for i, e := range all {
		t.Run(fmt.Sprintf("line %d", e.line), func(t *testing.T) {
			if i >= len(printed)-1 {
				t.Fatal("it was not reached")
			}
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
		s.WriteString(replace.Replace(e.commands) + "echo '" + fence + "'\n")
	}
	return s.String()
}

func execute(t *testing.T, bash, script string, env []string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "examples.sh")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), bound)
	defer stop()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, bash, "--norc", file)
	cmd.Dir, cmd.Env = filepath.Join(dir, "work"), env
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := os.Mkdir(cmd.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	return out.String(), err
}
