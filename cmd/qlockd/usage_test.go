package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/quorumlock/quorumlock/cmd/buildinfo"
	"github.com/quorumlock/quorumlock/fsm"
)

func TestHelpNamesEveryFlagAndItsVariable(t *testing.T) {
	code, stdout, stderr := runToEnd(t, nil, "--help")
	if code != 0 || stderr != "" {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
	for _, g := range defaults().groups() {
		for _, s := range g.settings {
			if !strings.Contains(stdout, "--"+s.name+" ") || !strings.Contains(stdout, "[$"+envName(s.name)+"]") {
				t.Errorf("--help does not name --%s and %s", s.name, envName(s.name))
			}
		}
	}
	if !strings.Contains(stdout, "--version") {
		t.Error("--help does not name --version")
	}
}

func TestVersion(t *testing.T) {
	for _, argument := range []string{"--version", "version"} {
		code, stdout, _ := runToEnd(t, nil, argument)
		if code != 0 || !strings.HasPrefix(stdout, "qlockd version v1.2.3-test") || !strings.HasSuffix(stdout, fmt.Sprintf(", feature level %d\n", fsm.Level)) {
			t.Errorf("%s: code %d, %q", argument, code, stdout)
		}
	}
}

// TestVersionAsJSON verifies that programs get the version in the form that qlock has.
func TestVersionAsJSON(t *testing.T) {
	code, stdout, stderr := runToEnd(t, nil, "version", "--json")
	var got buildinfo.Info
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 || stderr != "" {
		t.Fatalf("code %d, %v, stdout %q, stderr %q", code, err, stdout, stderr)
	}
	if got.Version != "v1.2.3-test" || got.Go != runtime.Version() || got.FeatureLevel != fsm.Level || !strings.Contains(stdout, `"featureLevel"`) {
		t.Errorf("%+v", got)
	}
}

func TestUsageErrorsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		name string
		env  []string
		args []string
		says string
	}{
		{"nothing", nil, nil, "--id is missing"},
		{"no directory", nil, []string{"--id", "n1"}, "--data-dir is missing"},
		{"unknown flag", nil, []string{"--dve"}, "dve"},
		{"argument", nil, []string{"--dev", "start"}, `unexpected argument "start"`},
		{"odd duration", nil, []string{"--dev", "--min-ttl", "5"}, "min-ttl"},
		{"odd duration in the environment", []string{"QLOCKD_MIN_TTL=soon"}, []string{"--dev"}, "QLOCKD_MIN_TTL"},
		{"fraction of a millisecond", nil, []string{"--dev", "--min-ttl", "5s1us"}, "whole milliseconds"},
		{"zero", nil, []string{"--dev", "--max-sessions", "0"}, "--max-sessions must be positive"},
		{"no hash interval", nil, []string{"--dev", "--hash-interval", "0s"}, "--hash-interval must be positive"},
		{"large value", nil, []string{"--dev", "--max-value-bytes", "70000"}, "at most 65536"},
		{"odd cluster", nil, []string{"--id", "n1", "--data-dir", "d", "--cluster", "n1"}, "id=host:port"},
		{"not in cluster", nil, []string{"--id", "n1", "--data-dir", "d", "--cluster", "n2=h:1"}, "add n1=host:port"},
		{"dev with a directory", nil, []string{"--dev", "--data-dir", "d"}, "leave that out"},
		{"wildcard", nil, []string{"--dev", "--insecure", "--client-addr", "0.0.0.0:7400"}, "--advertise-client-addr"},
		{"plaintext", nil, []string{"--dev", "--peer-addr", "192.0.2.1:7401"}, "--peer-tls-cert"},
		{"half a certificate", nil, []string{"--dev", "--tls-cert", "c"}, "--tls-key"},
		{"little memory", nil, []string{"--dev", "--memory-limit", "1000000"}, "--memory-limit 1000000: use at least"},
		{"odd client auth", nil, []string{"--dev", "--http-client-auth", "maybe"}, "require, optional or none"},
		{"a feature level of later programs", nil, []string{"--dev", "--feature-level", "9"}, fmt.Sprintf("--feature-level 9: use at most %d, the highest that this program supports", fsm.Level)},
		{"settings of a later level", nil, []string{"--dev", "--feature-level", "1", "--max-cached-idle", "1s"}, "--feature-level 1: --max-cached-idle and --no-cached-holds need level 2: leave them out, or --feature-level"},
		{"settings of a later level, cached holds forbidden", nil, []string{"--dev", "--feature-level", "1", "--no-cached-holds"}, "need level 2"},
		{"a short idle", nil, []string{"--dev", "--max-cached-idle", "1ms"}, "--max-cached-idle 1: use 100 to 2147483648"},
		{"odd level", nil, []string{"--dev", "--log-level", "loud"}, "trace, debug, info, warn or error"},
		{"odd format", nil, []string{"--dev", "--log-format", "xml"}, "text or json"},
		{"no file", nil, []string{"--dev", "--config", "nowhere.yaml"}, "nowhere.yaml"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := runToEnd(t, c.env, c.args...)
			if code != exitUsage || !strings.Contains(stderr, c.says) || stdout != "" {
				t.Errorf("code %d, want %d and %q\nstdout: %s\nstderr: %s", code, exitUsage, c.says, stdout, stderr)
			}
			if strings.Count(stderr, "\n") != 1 {
				t.Errorf("not one line:\n%s", stderr)
			}
		})
	}
}

func configFile(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "qlockd.yaml")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestFaultsOfTheFileAreNamed(t *testing.T) {
	for _, c := range []struct{ name, content, says string }{
		{"unknown key", "id: n1\ndata_dir: d\n", `line 2: unknown key "data_dir"`},
		{"another file", "config: other.yaml\n", `unknown key "config"`},
		{"help", "help: true\n", `unknown key "help"`},
		{"no value", "id:\n", "line 1: id: give it a plain value"},
		{"map", "id: {a: b}\n", "give it a plain value"},
		{"twice", "id: n1\nid: n2\n", "already defined"},
		{"no yaml", "{", "YAML"},
		{"odd value", "min-ttl: soon\n", "line 1: min-ttl"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, _, stderr := runToEnd(t, nil, "--config", configFile(t, c.content))
			if code != exitUsage || !strings.Contains(stderr, c.says) {
				t.Errorf("code %d, want %d and %q\n%s", code, exitUsage, c.says, stderr)
			}
		})
	}
}

func TestFlagBeforeEnvironmentBeforeFileBeforeDefault(t *testing.T) {
	file := configFile(t, "id: of-the-file\nmin-ttl: 6s\nlog-level: info\ncluster:\n- n1=127.0.0.1:9\n- n2=127.0.0.1:10\ndev: true\nclient-addr: 127.0.0.1:0\npeer-addr: 127.0.0.1:0\nhttp-addr: \"\"\n")
	for _, c := range []struct {
		name string
		env  []string
		args []string
		id   string
	}{
		{"file", nil, nil, "of-the-file"},
		{"environment", []string{"QLOCKD_ID=of-the-environment"}, nil, "of-the-environment"},
		{"flag", []string{"QLOCKD_ID=of-the-environment"}, []string{"--id", "of-the-flag"}, "of-the-flag"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := start(t, append(c.env, "QLOCKD_CONFIG="+file, "QLOCKD_CLUSTER="), c.args...)
			if reply, _, _ := hello(t, d.addr("client")); reply.GetNodeId() != c.id {
				t.Errorf("the node is %q, want %q", reply.GetNodeId(), c.id)
			}
			if code := d.signal(syscall.SIGTERM); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
	// The list in the file applies if nothing overrides it.
	code, _, stderr := runToEnd(t, nil, "--config", file)
	if code != exitUsage || !strings.Contains(stderr, "--dev makes its own --cluster") {
		t.Errorf("code %d\n%s", code, stderr)
	}
}
