package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/cmd/buildinfo"
	"github.com/quorumlock/quorumlock/server"
)

// given calls do with the context that the command line makes of args, as the program does.
func given(t *testing.T, do func(c *cli.Context) error, args ...string) error {
	t.Helper()
	app := newApp(nil)
	app.Writer, app.ErrWriter = io.Discard, io.Discard
	app.Action = do
	return app.Run(append([]string{"qlockd"}, args...))
}

// TestLimitsOfSettings checks that a number or time that would mean "the default", or does not fit, is
// refused.
func TestLimitsOfSettings(t *testing.T) {
	most := ttl(math.MaxInt32)
	for _, test := range []struct {
		name, value, says string // says is the expected error; empty means valid
	}{
		{"min-ttl", "1ms", ""}, {"min-ttl", "0s", "whole milliseconds"}, {"min-ttl", "-1s", "whole milliseconds"},
		{"min-ttl", "1500us", "whole milliseconds"}, {"min-ttl", "999us", "whole milliseconds"},
		{"max-ttl", most.String(), ""}, {"max-ttl", (most + time.Millisecond).String(), "from 1ms to"},
		{"max-value-bytes", "65536", ""}, {"max-value-bytes", "65537", "at most 65536"},
		{"max-sessions", "1", ""}, {"max-sessions", "0", "must be positive"},
		{"election-timeout", "1ns", ""}, {"election-timeout", "0s", "must be positive"}, {"election-timeout", "-1s", "must be positive"},
		{"snapshot-threshold", "0", ""}, {"max-tunnels", "0", ""}, {"max-tunnels", "-1", "must be positive"},
		{"shutdown-timeout", "0s", ""},
	} {
		o := defaults()
		err := given(t, o.read, "--"+test.name, test.value)
		if (err == nil) != (test.says == "") || err != nil && (!strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), "--"+test.name)) {
			t.Errorf("--%s %s: %v, want %q", test.name, test.value, err, test.says)
		}
	}
	// All errors are reported together.
	err := given(t, defaults().read, "--max-sessions", "0", "--min-ttl", "0s")
	if err == nil || !strings.Contains(err.Error(), "--max-sessions") || !strings.Contains(err.Error(), "--min-ttl") {
		t.Errorf("%v", err)
	}
}

// TestZeroIsNotReplacedByADefault checks that 0 is refused for every number that has a default, in the
// groups where 0 would mean that default.
func TestZeroIsNotReplacedByADefault(t *testing.T) {
	for _, g := range defaults().groups() {
		for _, s := range g.settings {
			if _, milli := s.field.(milliseconds); milli {
				continue
			}
			field := reflect.ValueOf(s.field).Elem()
			if !field.CanConvert(reflect.TypeFor[float64]()) {
				continue
			}
			zero := "0"
			if _, is := s.field.(*time.Duration); is {
				zero = "0s"
			}
			err := given(t, defaults().read, "--"+s.name, zero)
			if refused := err != nil; refused != (g.positive && !field.IsZero()) {
				t.Errorf("--%s %s: %v", s.name, zero, err)
			}
		}
	}
}

// TestDefaultsThatAreTheNodes checks that settings that the flags leave to the node are zero, not the
// defaults of package server.
func TestDefaultsThatAreTheNodes(t *testing.T) {
	o, served := defaults(), server.Defaults()
	if o.MaxBufferBytes != 0 || o.Settings.MaxStateBytes != 0 || o.Limits.MaxTunnels != 0 {
		t.Errorf("%d, %d, %d", o.MaxBufferBytes, o.Settings.MaxStateBytes, o.Limits.MaxTunnels)
	}
	if o.HTTPLimits.MaxConnections != 4_096 || o.HTTPLimits.MaxRequests != 16_384 || o.logLevel != "info" || o.logFormat != "text" {
		t.Errorf("%d connections, %d requests, logs %s in %s", o.HTTPLimits.MaxConnections, o.HTTPLimits.MaxRequests, o.logLevel, o.logFormat)
	}
	if o.Limits.MaxConnections != served.Limits.MaxConnections || o.ElectionTimeout != served.ElectionTimeout {
		t.Error("the others are not those of package server")
	}
}

func TestConfigure(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		says string
		want []server.Peer
	}{
		"alone":          {nil, "", nil},
		"three":          {[]string{"--cluster", "n1=a:1, n2=b:2,n3=c:3"}, "", []server.Peer{{ID: "n1", Addr: "a:1"}, {ID: "n2", Addr: "b:2"}, {ID: "n3", Addr: "c:3"}}},
		"no equals sign": {[]string{"--cluster", "n1=a:1,n2"}, `--cluster: "n2" is not of the form id=host:port`, nil},
		"no id":          {[]string{"--cluster", "=a:1"}, `"=a:1" is not of the form`, nil},
		"no address":     {[]string{"--cluster", "n1="}, `"n1=" is not of the form`, nil},
		"an argument":    {[]string{"--dev", "start"}, `unexpected argument "start": everything is a flag, see qlockd --help`, nil},
		"an odd setting": {[]string{"--max-locks", "0"}, "--max-locks must be positive", nil},
	} {
		var cfg server.Config
		err := given(t, func(c *cli.Context) (err error) { cfg, err = configure(c); return err }, test.args...)
		if test.says != "" {
			if !errors.Is(err, errUsage) || !strings.Contains(err.Error(), test.says) || cfg.Version != "" {
				t.Errorf("%s: %v, want %q", name, err, test.says)
			}
			continue
		}
		if err != nil || !slices.Equal(cfg.Cluster, test.want) || cfg.Version != programBuild().Version {
			t.Errorf("%s: %v, %v, version %q", name, cfg.Cluster, err, cfg.Version)
		}
	}
}

// TestPrepareDev checks that a temporary node has its own directory and no other.
func TestPrepareDev(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for name, test := range map[string]struct {
		args []string
		id   string
		says string
		made bool
	}{
		"not asked for":    {[]string{"--id", "n1", "--data-dir", "d"}, "n1", "", false},
		"asked for":        {[]string{"--dev"}, "dev", "", true},
		"with a name":      {[]string{"--dev", "--id", "n1"}, "n1", "", true},
		"with a directory": {[]string{"--dev", "--data-dir", "d"}, "", "--dev makes its own --data-dir: leave that out", false},
		"with a cluster":   {[]string{"--dev", "--cluster", "n1=a:1"}, "", "--dev makes its own --cluster: leave that out", false},
	} {
		err := given(t, func(c *cli.Context) error {
			cfg, err := configure(c)
			if err != nil {
				return err
			}
			given := cfg.DataDir
			remove, err := prepareDev(c, &cfg)
			defer remove()
			if made := cfg.DataDir != given; made != test.made || test.says == "" && cfg.ID != test.id {
				t.Errorf("%s: %q in %q", name, cfg.ID, cfg.DataDir)
			}
			if _, missing := os.Stat(cfg.DataDir); test.made && missing != nil {
				t.Errorf("%s: %v", name, missing)
			}
			remove()
			if _, missing := os.Stat(cfg.DataDir); test.made && !errors.Is(missing, os.ErrNotExist) {
				t.Errorf("%s: %q is left", name, cfg.DataDir)
			}
			return err
		}, test.args...)
		if (err == nil) != (test.says == "") || err != nil && (!errors.Is(err, errUsage) || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
	t.Setenv("TMPDIR", t.TempDir()+"/nowhere")
	err := given(t, func(c *cli.Context) error { _, err := prepareDev(c, &server.Config{}); return err }, "--dev")
	if err == nil || errors.Is(err, errUsage) || !strings.Contains(err.Error(), "temporary directory") {
		t.Errorf("without room: %v", err)
	}
}

// TestExitCode checks that the exit code shows whether the user can correct the error, and that the last
// line explains how.
func TestExitCode(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		code int
		says string
	}{
		"well":            {nil, exitOK, ""},
		"usage":           {usage(errors.New("--x is odd")), exitUsage, "qlockd: --x is odd\n"},
		"config":          {fmt.Errorf("%w: %w", server.ErrConfig, errors.Join(errors.New("--x"), errors.New("--y"))), exitUsage, "qlockd: invalid configuration: --x; --y\n"},
		"another node's":  {fmt.Errorf("a: %w", server.ErrOtherNode), exitUsage, "qlockd: a: the data directory belongs to another node\n"},
		"halted":          {fmt.Errorf("%w: disk", errHalted), exitSoftware, "qlockd: halted: disk\n"},
		"several lines":   {errors.New("one\ntwo\x1b[2J"), exitSoftware, "qlockd: one\n  two\\x1b[2J\n"},
		"anything at all": {io.ErrUnexpectedEOF, exitSoftware, "qlockd: unexpected EOF\n"},
	} {
		var out bytes.Buffer
		if code := exitCode(&out, test.err); code != test.code || !strings.HasSuffix(out.String(), test.says) || test.err == nil && out.Len() > 0 {
			t.Errorf("%s: %d, %q", name, code, out.String())
		}
	}
}

// TestProgramVersion checks that the version comes from the build information if it is not set otherwise.
func TestProgramVersion(t *testing.T) {
	defer func(before string) { version = before }(version)
	version = "v9"
	if got := programBuild().Version; got != "v9" {
		t.Errorf("%q, want what the linker set", got)
	}
	version = ""
	if got := programBuild().Version; !strings.HasPrefix(got, buildinfo.Release) {
		t.Errorf("%q, want %s", got, buildinfo.Release)
	}
}
