package main

import (
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/urfave/cli/v2"
)

// badTexts are command lines, by verb, with a text that no cluster accepts in each place that takes text.
// BAD is its placeholder.
var badTexts = map[string][]string{
	"run": {"run BAD -- true", "run a BAD -- true", "run a --label k=BAD -- true", "run a --label BAD=v -- true", "run a --session-name BAD -- true"},
	"elect": {"elect BAD -- true", "elect BAD --leader", "elect BAD --observe",
		"elect a --label k=BAD -- true", "elect a --session-name BAD -- true"},
	"acquire":             {"acquire BAD", "acquire a --label k=BAD", "acquire a --session-name BAD"},
	"locks":               {"locks BAD"},
	"show":                {"show BAD"},
	"why":                 {"why BAD"},
	"watch":               {"watch BAD", "watch --prefix BAD", "watch --after BAD:1"},
	"verify":              {"verify BAD 1"},
	"revoke":              {"revoke BAD --token 1", "revoke a --token 1 --reason BAD", "revoke a --token 1 --operator BAD"},
	"force-release":       {"force-release BAD --token 1", "force-release a --token 1 --reason BAD"},
	"skip-delay":          {"skip-delay BAD", "skip-delay a --reason BAD"},
	"resize":              {"resize BAD 3", "resize a 3 --reason BAD"},
	"once":                {"once BAD --keep 1h -- true", "once a --keep 1h --label k=BAD -- true", "once a --keep 1h --session-name BAD -- true"},
	"contended":           {"contended --prefix BAD", "contended --by BAD"},
	"session show":        {"session show BAD"},
	"session close":       {"session close 7 --reason BAD", "session close 7 --operator BAD"},
	"policy apply":        {"policy apply testdata/new-policy.yaml --reason BAD", "policy apply testdata/new-policy.yaml --reason r --operator BAD"},
	"policy remove":       {"policy remove --reason BAD"},
	"policy can":          {"policy can BAD lock a", "policy can a lock BAD", "policy can a BAD"},
	"token create":        {"token create BAD", "token create a --reason BAD"},
	"token revoke":        {"token revoke BAD", "token revoke 7 --operator BAD"},
	"cluster add":         {"cluster add BAD h:1", "cluster add n4 BAD"},
	"cluster remove":      {"cluster remove BAD"},
	"cluster replace":     {"cluster replace BAD n4 h:1", "cluster replace n2 BAD h:1", "cluster replace n2 n4 BAD"},
	"cluster recover":     {"cluster recover d --to e --confirm c --reason BAD", "cluster recover d --to e --confirm c --reason r --operator BAD"},
	"cluster drain":       {"cluster drain BAD", "cluster drain n1 --reason BAD"},
	"cluster undrain":     {"cluster undrain BAD", "cluster undrain n1 --operator BAD"},
	"cluster transfer":    {"cluster transfer BAD"},
	"cluster acknowledge": {"cluster acknowledge --reason BAD", "cluster acknowledge --reason r --operator BAD"},
	"quota":               {"quota BAD"},
	"bench pairs":         {"bench pairs --prefix BAD"},
}

// noTexts are verbs without text for the cluster. They take no arguments, or files and addresses.
var noTexts = []string{"top", "extend", "release", "sessions", "deadlocks", "status", "check", "doctor", "audit", "cluster members", "whoami", "policy show", "policy diff", "token list",
	"bench hot", "bench readers", "bench idle", "bench held", "bench failover", // like bench pairs
	"snapshot save", "snapshot inspect", "snapshot verify", "snapshot restore",
	"context save", "context use", "context list", "context delete",
	"tls init", "tls add", "tls renew", "tls revoke", "tls show", "version", "completion", "complete", "man"}

// TestBadTextIsRefusedBeforeConnecting tries all of badTexts with several bad texts: the program exits with
// 64 without connecting, and names the text that is wrong.
func TestBadTextIsRefusedBeforeConnecting(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var connections atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			conn.Close()
		}
	}()
	for verb, lines := range badTexts {
		for _, line := range lines {
			for bad, shown := range map[string]string{"a\xffb": `a\xffb`, "a\nb": `a\nb`, "a\x1b[2Jb": `a\x1b[2Jb`} {
				words := badLine(verb, line, bad)
				words = append([]string{"--endpoints", listener.Addr().String(), "--timeout", "20s"}, words...)
				began := time.Now()
				got := execTest(t, dial, words...)
				code, said := got.code, got.err
				if code != exitUsage || !strings.Contains(said, shown) || strings.Contains(said, bad) {
					t.Errorf("%s: %q with %q: %d, %s", verb, line, bad, code, said)
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("%s: %q took %v", verb, line, took)
				}
			}
		}
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

// badLine returns a command line with that text, and with a reason if the verb needs one.
func badLine(verb, line, bad string) []string {
	words := strings.Fields(line)
	commands := newApp(console{}, dial).Commands
	for i, name := range strings.Fields(verb) {
		at := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.Name == name })
		if findFlag(commands[at].Flags, "reason") != nil && !slices.Contains(words, "--reason") {
			words = slices.Insert(words, i+1, "--reason", "r")
		}
		commands = commands[at].Subcommands
	}
	for i, word := range words {
		words[i] = strings.ReplaceAll(word, "BAD", bad)
	}
	return words
}

// TestEveryVerbIsTriedWithBadText fails for a verb that is in neither list.
func TestEveryVerbIsTriedWithBadText(t *testing.T) {
	var walk func(path string, commands []*cli.Command)
	walk = func(path string, commands []*cli.Command) {
		for _, c := range commands {
			name := strings.TrimSpace(path + " " + c.Name)
			if len(c.Subcommands) > 0 {
				walk(name, c.Subcommands)
			} else if badTexts[name] == nil && !slices.Contains(noTexts, name) {
				t.Errorf("qlock %s: what does it do with text that no cluster takes?", name)
			}
		}
	}
	walk("", newApp(console{}, dial).Commands)
}

// TestNamesThatNoClusterTakes checks the rules for names in addition to those for text.
func TestNamesThatNoClusterTakes(t *testing.T) {
	for _, name := range []string{"", "/a", "a//b", "a/..", strings.Repeat("x", 513)} {
		for _, verb := range []string{"run", "elect", "acquire", "show", "why", "watch", "verify"} {
			words := []string{"--endpoints", "127.0.0.1:1", "--timeout", "100ms", verb, "--", name}
			switch verb {
			case "run", "elect":
				words = append(words, "--", "true")
			case "verify":
				words = append(words, "1")
			}
			if got := execTest(t, dial, words...); got.code != exitUsage || !strings.Contains(got.err, "the lock name") {
				t.Errorf("%s %q: %+v", verb, name, got)
			}
		}
	}
}
