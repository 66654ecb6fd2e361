package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server"
)

const manual = "../../docs/HTTP.md"

// example is a block of commands and, if the next block shows it, their output.
type example struct {
	commands, shows string
	line            int
}

func examples(t *testing.T) []example {
	t.Helper()
	text, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	var found []example
	var block *string
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case line == "```sh":
			found = append(found, example{line: i + 1})
			block = &found[len(found)-1].commands
		case line == "```json" && len(found) > 0:
			block = &found[len(found)-1].shows
		case strings.HasPrefix(line, "```"):
			block = nil
		case block != nil:
			*block += line + "\n"
		}
	}
	return found
}

// pattern converts shown output to a regular expression, in which … matches anything and whitespace is
// ignored.
func pattern(shown string) *regexp.Regexp {
	parts := strings.Split(bare(shown), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
}

func bare(s string) string { return strings.Join(strings.Fields(s), "") }

// open runs a node until the test ends.
func open(t *testing.T, cfg server.Config) *server.Node {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	node, err := server.Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
		defer stop()
		if err := node.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return node
}

func alone(t *testing.T) server.Config {
	cfg := server.Defaults()
	cfg.ID, cfg.DataDir = "n1", t.TempDir()
	cfg.Listen = server.Addresses{Peer: "127.0.0.1:0", Client: "127.0.0.1:0", HTTP: "127.0.0.1:0"}
	cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = 500*time.Millisecond, 500*time.Millisecond, 500*time.Millisecond
	return cfg
}

// ready waits until the node reports that it is ready.
func ready(t *testing.T, addr string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for {
		if resp, err := client.Get("http://" + addr + "/readyz"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("not ready in time")
		}
	}
}

// TestExamplesOfTheManual runs the manual's examples as one script, as a reader would type them. Only the
// address differs.
func TestExamplesOfTheManual(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash here")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl here")
	}
	node := open(t, alone(t))
	ready(t, node.Addrs().HTTP)
	all := examples(t)
	if len(all) < 14 {
		t.Fatalf("found %d examples only", len(all))
	}
	const fence = "=====end of example====="
	script := "set -eu\n"
	for _, e := range all {
		script += strings.ReplaceAll(e.commands, "127.0.0.1:7402", node.Addrs().HTTP) + "echo '" + fence + "'\n"
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, bash)
	cmd.Dir, cmd.Stdin = t.TempDir(), strings.NewReader(script)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Errorf("%v: %s", err, complaints.String())
	}
	if complaints.Len() > 0 {
		t.Errorf("on stderr: %s", complaints.String())
	}
	printed := strings.Split(out.String(), fence+"\n")
	for i, e := range all {
		t.Run(fmt.Sprintf("line %d", e.line), func(t *testing.T) {
			if i >= len(printed)-1 {
				t.Fatal("it was not reached")
			}
			if got := bare(printed[i]); !pattern(e.shows).MatchString(got) {
				t.Errorf("the manual shows\n%s\nbut this was printed:\n%s", e.shows, printed[i])
			}
		})
	}
}
