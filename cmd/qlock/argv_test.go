package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestFlagsStandAnywhere(t *testing.T) {
	for line, want := range map[string]string{
		"show orders/42 -o json":                      "-o json show -- orders/42",
		"-o json show orders/42":                      "-o json show -- orders/42",
		"show -o json orders/42":                      "-o json show -- orders/42",
		"show orders/42 --output=json":                "--output=json show -- orders/42",
		"show -- -o":                                  "show -- -- -o",
		"show -- --":                                  "show -- -- --",
		"run a -- cmd -o x":                           "run -- a -- cmd -o x",
		"run a --ttl 5s -- cmd --ttl 9s":              "run --ttl 5s -- a -- cmd --ttl 9s",
		"run --ttl 5s a -o json -- cmd":               "-o json run --ttl 5s -- a -- cmd",
		"run a --label x=1 --label y=2 -- cmd -- -z":  "run --label x=1 --label y=2 -- a -- cmd -- -z",
		"run --no-wait a -- cmd":                      "run --no-wait -- a -- cmd",
		"run -- cmd":                                  "run -- -- cmd",
		"cluster add n4 h:7401 --timeout 9s":          "--timeout 9s cluster add -- n4 h:7401",
		"--endpoints a:1,b:2 cluster -o json members": "--endpoints a:1,b:2 -o json cluster members --",
		"cluster --help":                              "cluster --help",
		"cluster add --help":                          "cluster add --help",
		"help run":                                    "run --help",
		"run -h":                                      "run --help",
		"--help":                                      "--help",
		"show orders/42 --help":                       "show --help",
		"":                                            "",
		"--version":                                   "--version",
		"locks - -o json":                             "-o json locks -- -",
		"show help":                                   "show -- help",
		"-output json locks":                          "-output json locks --",
	} {
		app := newApp(console{}, nil)
		parsed, err := parse(app, strings.Fields(line))
		if err != nil {
			t.Errorf("%q: %v", line, err)
			continue
		}
		if got := strings.Join(parsed.argv("qlock")[1:], " "); got != want {
			t.Errorf("%q became %q, want %q", line, got, want)
		}
	}
}

func TestFlagsOutOfPlaceAreUsageErrors(t *testing.T) {
	for line, want := range map[string]string{
		"frob":                "no verb",
		"cluster frob":        "qlock cluster has no verb",
		"show a --frob":       "unknown flag --frob; see qlock show --help",
		"--ttl 5s run a -- b": "unknown flag --ttl",
		"show a -o":           "flag --output needs a value",
		"run a --ttl":         "flag --ttl needs a value",
	} {
		_, err := parse(newApp(console{}, nil), strings.Fields(line))
		if exitCode(err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: exit code %d, %v; want %d, %q", line, exitCode(err), err, exitUsage, want)
		}
	}
}

func TestEmptyArgumentsSurvive(t *testing.T) {
	parsed, err := parse(newApp(console{}, nil), []string{"run", "a", "--", "cmd", "", "b c"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"qlock", "run", "--", "a", "--", "cmd", "", "b c"}; !slices.Equal(parsed.argv("qlock"), want) {
		t.Errorf("got %q, want %q", parsed.argv("qlock"), want)
	}
}

func TestMistakesInTheCommandLine(t *testing.T) {
	mistakes(t, map[string]string{
		"":                                       "which verb?",
		"cluster":                                "which verb? see qlock cluster --help",
		"show":                                   "one lock's name",
		"show a b":                               "one lock's name",
		"locks a b":                              "at most one prefix",
		"sessions a":                             "no arguments",
		"status a":                               "no arguments",
		"version a":                              "no arguments",
		"cluster members a":                      "no arguments",
		"cluster add n4":                         "peer address",
		"cluster remove":                         "one node's id",
		"cluster replace n2 n4":                  "peer address",
		"cluster replace n2 n2 h:1":              "another node",
		"cluster replace n2 n4 h:1":              "needs --reason",
		"cluster recover":                        "data directories of stopped nodes",
		"cluster recover a --to b":               "both --to and --confirm",
		"cluster recover a --confirm b":          "both --to and --confirm",
		"cluster recover a b --to c --confirm d": "from one data directory",
		"cluster recover a --to b --confirm c":   "needs --reason",
		"cluster drain":                          "one node's id",
		"cluster undrain n1 n2":                  "one node's id",
		"cluster transfer a b":                   "at most one",
		"cluster add n4 h:1":                     "needs --reason",
		"cluster remove n4":                      "needs --reason",
		"cluster drain n4":                       "needs --reason",
		"cluster undrain n4":                     "needs --reason",
		"cluster transfer":                       "needs --reason",
		"cluster acknowledge":                    "needs --reason",
		"cluster acknowledge n3":                 "no arguments",
		"completion tcsh":                        "bash, zsh, fish and powershell",
		"locks -o xml":                           "none of table, wide, json, yaml and template=TEXT",
		"locks --timeout 0s":                     "must be positive",
		"locks --timeout fast":                   "is no duration, such as 30s",
		"run":                                    "lock's name",
		"run a":                                  "behind --",
		"run a --":                               "behind --",
		"run a true":                             "behind --",
		"run a --ttl 0s -- true":                 "--ttl must be positive",
		"run a --ttl -1s -- true":                "--ttl must be positive",
		"run a --grace -1s -- true":              "must not be negative",
		"run a --ttl 10s --grace 6s -- true":     "more than half",
		"run a --wait 1s --no-wait -- true":      "contradict",
		"run a --label x -- true":                "KEY=VALUE",
		"run a --label =x -- true":               "KEY=VALUE",
		"run a --label x=1 --label x=2 -- true":  "given twice",
		"tls init":                               "--cluster and --dir",
		"tls init --cluster c --dir d":           "at least one",
		"tls init --cluster c --dir d --node =h": "ID=HOST",
		"locks --cert c":                         "go together",
		"locks --cacert /nonexistent":            "/nonexistent",
		"locks --endpoints nowhere.invalid":      "has no address",
		"locks --endpoints ,":                    "endpoints",
	})
}

func TestMistakesAboutWhatToHold(t *testing.T) {
	mistakes(t, map[string]string{
		"run a a -- true":                          "a is named twice",
		"run a --max-hold 99ms -- true":            "at least 100ms",
		"run a --max-hold 4s --grace 3s -- true":   "more than half of --max-hold 4s",
		"run a --lock-delay 61s -- true":           "not within 0 and 1m",
		"run a --on-lost explode -- true":          "none of term, int",
		"run a --on-lost kill --grace 1s -- t":     "contradict",
		"run a --permits 2 -- true":                "needs --limit",
		"run a --limit 0 -- true":                  "must be positive",
		"run a --limit 2 --permits 3 -- true":      "not within 1 and the limit of 2",
		"run a --limit 2 --shared -- true":         "contradict",
		"run a b --unfair -- true":                 "one exclusive lock",
		"run a --wait 2000h -- true":               "too long",
		"elect":                                    "elect needs a lock's name",
		"elect a b -- true":                        "one election",
		"elect a --leader --observe":               "contradict",
		"elect a --leader -- true":                 "no command",
		"acquire":                                  "a lock's name",
		"acquire a --ttl 0s":                       "no time that a lock can be held for",
		"acquire a --lock-delay -1s":               "not within",
		"extend a":                                 "no arguments",
		"extend":                                   "which lease?",
		"extend --lease nonsense":                  "no lease as qlock acquire wrote it",
		"release --lease 0.AAAAAAAAAAAAAAAAAAAAAA": "no lease",
		"watch a --prefix b":                       "takes one of",
		"watch --after x:y":                        "neither REVISION",
		"verify a":                                 "a lock's name and a token",
		"verify a 0":                               "is no token",
		"verify a 9223372036854775808":             "is no token",
		"force-release":                            "takes one lock's name",
		"force-release a":                          "needs --token",
		"force-release a --token 5":                "needs --reason",
		"revoke a --token 5 --reason":              "needs a value",
		"revoke a --token 5 --grace 0s":            "--grace 0s",
		"skip-delay":                               "takes one lock's name",
		"skip-delay a":                             "needs --reason",
		"resize a":                                 "its new limit",
		"resize a ten":                             "is no positive number",
		"resize a 10":                              "needs --reason",
		"why":                                      "one lock's name",
		"deadlocks a":                              "no arguments",
		"audit a":                                  "no arguments",
		"snapshot":                                 "which verb?",
		"snapshot save":                            "one file's name",
		"snapshot restore a b":                     "one file's name",
		"snapshot save a":                          "needs --reason",
		"snapshot restore a":                       "needs --reason",
	})
}

// mistakes checks that each line is reported as a usage error in one line.
func mistakes(t *testing.T, lines map[string]string) {
	t.Helper()
	for line, want := range lines {
		got := execTest(t, dial, strings.Fields(line)...)
		if got.code != exitUsage || !strings.Contains(got.err, want) || got.out != "" {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q; want %d and %q", line, got.code, got.out, got.err, exitUsage, want)
		}
		if strings.Count(got.err, "\n") != 1 || !strings.HasPrefix(got.err, "qlock: ") {
			t.Errorf("%q: stderr is not one line of ours: %q", line, got.err)
		}
	}
}

func TestHelpIsNoMistake(t *testing.T) {
	for _, line := range []string{"--help", "help", "run --help", "help run", "cluster --help", "cluster add -h", "tls init --help", "acquire --export --help", "show orders/42 --help", "run orders/42 -h -- true"} {
		got := execTest(t, dial, strings.Fields(line)...)
		if got.code != exitOK || got.err != "" || !strings.Contains(got.out, "USAGE") {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", line, got.code, got.out, got.err)
		}
	}
}

// execution is the result of a command line.
type execution struct {
	code     int
	out, err string
}

// execTest runs a command line in this process, with files for its console.
func execTest(t *testing.T, dial dialer, words ...string) execution {
	t.Helper()
	return execInput(t, dial, "", words...)
}

func execInput(t *testing.T, dial dialer, input string, words ...string) execution {
	t.Helper()
	return execConsole(t, console{in: scratch(t, input), out: scratch(t, ""), err: scratch(t, "")}, dial, words...)
}

func execConsole(t *testing.T, std console, dial dialer, words ...string) execution {
	t.Helper()
	code := execute(words, std, dial)
	return execution{code, content(t, std.out), content(t, std.err)}
}

// scratch returns a file with content, positioned at its start.
func scratch(t *testing.T, text string) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "console")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	return f
}

func content(t *testing.T, f *os.File) string {
	t.Helper()
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
