package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestParseFile checks that the values of a file have the form that their flags would have.
func TestParseFile(t *testing.T) {
	for name, test := range map[string]struct {
		content string
		want    map[string]fileValue
		says    string
	}{
		"empty":         {"", nil, ""},
		"a comment":     {"# nothing\n", nil, ""},
		"values":        {"id: n1\nmax-locks: 7\ndev: true\n", map[string]fileValue{"id": {"n1", 1}, "max-locks": {"7", 2}, "dev": {"true", 3}}, ""},
		"text":          {"id: \"\"\n", map[string]fileValue{"id": {"", 1}}, ""},
		"a list":        {"cluster:\n- n1=a:1\n- n2=b:2\n", map[string]fileValue{"cluster": {"n1=a:1,n2=b:2", 2}}, ""},
		"an empty list": {"cluster: []\n", map[string]fileValue{"cluster": {"", 1}}, ""},
		"nothing given": {"id: n1\ncluster:\n", nil, "line 2: cluster: give it a plain value"},
		"null":          {"id: null\n", nil, "line 1: id: give it a plain value"},
		"a map":         {"id: {a: b}\n", nil, "line 1: id: give it a plain value"},
		"a list in one": {"cluster:\n- [a]\n", nil, "a list may hold only plain values"},
		"a map in one":  {"cluster:\n- {a: b}\n", nil, "a list may hold only plain values"},
		"no YAML":       {"{", nil, "not YAML with lines"},
		"no keys":       {"- a\n", nil, "not YAML with lines"},
	} {
		got, err := parseFile([]byte(test.content))
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) || !maps.Equal(got, test.want) {
			t.Errorf("%s: %v, %v, want %v, %q", name, got, err, test.want, test.says)
		}
	}
}

// TestApplyFile checks that a file sets what neither a flag nor the environment sets, and only flags.
func TestApplyFile(t *testing.T) {
	for name, test := range map[string]struct {
		content, env string
		args         []string
		want, says   string
	}{
		"the file":        {"id: file\n", "", nil, "file", ""},
		"a flag":          {"id: file\n", "", []string{"--id", "flag"}, "flag", ""},
		"the environment": {"id: file\n", "env", nil, "env", ""},
		"nothing":         {"", "", nil, "", ""},
		"an unknown key":  {"id: a\ndata_dir: d\n", "", nil, "", `line 2: unknown key "data_dir" (did you mean data-dir?): keys are the names of qlockd's flags`},
		"another file":    {"config: a\n", "", nil, "", `unknown key "config"`},
		"help":            {"help: true\n", "", nil, "", `unknown key "help"`},
		"version":         {"version: true\n", "", nil, "", `unknown key "version"`},
		"an odd value":    {"min-ttl: soon\n", "", nil, "", "line 1: min-ttl: "},
		"an odd file":     {"{", "", nil, "", "not YAML with lines"},
	} {
		if test.env != "" {
			t.Setenv("QLOCKD_ID", test.env)
		}
		file, id := configFile(t, test.content), ""
		err := given(t, func(c *cli.Context) error {
			err := applyFile(c)
			id = c.String("id")
			return err
		}, append([]string{"--config", file}, test.args...)...)
		os.Unsetenv("QLOCKD_ID")
		if test.says == "" && (err != nil || id != test.want) {
			t.Errorf("%s: id %q, %v, want %q", name, id, err, test.want)
		}
		if test.says != "" && (!errors.Is(err, errUsage) || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), file)) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
	if err := given(t, applyFile); err != nil {
		t.Errorf("without a file: %v", err)
	}
	if err := given(t, applyFile, "--config", "nowhere.yaml"); !errors.Is(err, errUsage) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without that file: %v", err)
	}
}

// failing is a writer that always fails.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestNewLogger(t *testing.T) {
	for name, test := range map[string]struct {
		level, format, says string
	}{
		"text":       {"info", "text", ""},
		"json":       {"debug", "json", ""},
		"odd level":  {"loud", "text", `--log-level "loud": use trace, debug, info, warn or error`},
		"no level":   {"", "text", `--log-level ""`},
		"odd format": {"info", "xml", `--log-format "xml": use text or json`},
	} {
		set := flag.NewFlagSet("", flag.ContinueOnError)
		set.String("log-level", test.level, "")
		set.String("log-format", test.format, "")
		var out bytes.Buffer
		log, err := newLogger(cli.NewContext(nil, set, nil), &out)
		if test.says != "" {
			if log != nil || !errors.Is(err, errUsage) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v, want %q", name, err, test.says)
			}
			continue
		}
		if err != nil {
			t.Fatal(name, err)
		}
		log.Debug("first")
		log.Info("second")
		if strings.Contains(out.String(), "first") != (test.level == "debug") || strings.HasPrefix(out.String(), "{") != (test.format == "json") {
			t.Errorf("%s: %q", name, out.String())
		}
	}
	if n, err := (lineWriter{failing{}}).Write([]byte("x\n")); n != 0 || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("%d, %v of a log that cannot be written", n, err)
	}
	var out bytes.Buffer
	if n, err := (lineWriter{&out}).Write([]byte("x\n")); n != 2 || err != nil || out.String() != "x\n" {
		t.Errorf("%d, %v, %q", n, err, out.String())
	}
}

// TestUsage checks that errors of the command-line parser are usage errors.
func TestUsage(t *testing.T) {
	err := given(t, func(*cli.Context) error { return nil }, "--dve")
	if !errors.Is(err, errUsage) {
		t.Errorf("%v", err)
	}
	if names := cli.VersionFlag.Names(); len(names) != 1 || names[0] != "version" {
		t.Errorf("the version is %q, and -v is free", names)
	}
	cause := errors.New("odd")
	if !errors.Is(usage(cause), errUsage) || !errors.Is(usage(cause), cause) {
		t.Errorf("%v", usage(cause))
	}
}
