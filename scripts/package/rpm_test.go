package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sassoftware/go-rpmutils"
)

// noReplace are the flags of a configuration file that an upgrade does not replace.
const noReplace = rpmutils.RPMFILE_CONFIG | rpmutils.RPMFILE_NOREPLACE

// TestRPM verifies what rpm would install, and what it would run.
func TestRPM(t *testing.T) {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[host.arch]
	in, err := os.Open(artifact(t, "quorumlock-1.0.0-1."+arch+".rpm"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	p, err := rpmutils.ReadRpm(in)
	if err != nil {
		t.Fatal(err)
	}
	nevra, err := p.Header.GetNEVRA()
	if err != nil || nevra.String() != "quorumlock-0:1.0.0-1."+arch+".rpm" {
		t.Errorf("%v, %v", nevra, err)
	}
	files, err := p.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]rpmutils.FileInfo{}
	for _, f := range files {
		found[f.Name()] = f
	}
	for name, mode := range map[string]int{
		"/usr/bin/qlock": 0o755, "/usr/bin/qlockd": 0o755, configFile: 0o644, unitFile: 0o644, "/usr/lib/sysusers.d/quorumlock.conf": 0o644,
		"/usr/share/man/man1/qlock.1.gz": 0o644, "/usr/share/man/man8/qlockd.8.gz": 0o644, "/usr/share/zsh/site-functions/_qlock": 0o644,
		"/usr/share/bash-completion/completions/qlock": 0o644, "/usr/share/fish/vendor_completions.d/qlock.fish": 0o644,
		"/usr/share/doc/quorumlock/copyright": 0o644, "/usr/share/doc/quorumlock/third-party.txt": 0o644, "/usr/share/doc/quorumlock/changelog.gz": 0o644,
	} {
		f := found[name]
		if f == nil {
			t.Errorf("%s is missing", name)
		} else if f.Mode()&0o777 != mode || f.UserName() != "root" || f.GroupName() != "root" || f.Size() == 0 {
			t.Errorf("%s: %o %s:%s, %d bytes", name, f.Mode(), f.UserName(), f.GroupName(), f.Size())
		}
	}
	if f := found[configFile]; f != nil && f.Flags()&noReplace != noReplace {
		t.Errorf("an upgrade would replace %s: flags %b", configFile, f.Flags())
	}
	for tag, part := range map[int]string{rpmutils.POSTIN: "systemd-sysusers", rpmutils.PREUN: "systemctl disable", rpmutils.POSTUN: "daemon-reload"} {
		if script, err := p.Header.GetString(tag); err != nil || !strings.Contains(script, part) {
			t.Errorf("script %d lacks %q: %v\n%s", tag, part, err, script)
		}
	}
	unpacksToTheSamePrograms(t, p)
}

// unpacksToTheSamePrograms unpacks the files, and compares the programs with those that were built.
func unpacksToTheSamePrograms(t *testing.T, p *rpmutils.Rpm) {
	t.Helper()
	dir := t.TempDir()
	if err := p.ExpandPayload(dir); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"qlock", "qlockd"} {
		packed, err := os.ReadFile(filepath.Join(dir, "usr/bin", program))
		if err != nil {
			t.Fatal(err)
		}
		compiled, err := os.ReadFile(filepath.Join(built.dir, "build", host.dir(), program))
		if err != nil {
			t.Fatal(err)
		}
		if string(packed) != string(compiled) {
			t.Errorf("%s differs from the one that was built", program)
		}
	}
}
