//go:build linux

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// exposure is the highest level of exposure that systemd-analyze may find in the unit, in tenths: 0 is none, 100 is that
// of a unit without any restriction.
const exposure = "15"

// TestDebianPackage installs the package on a machine, starts what the unit says, uses it, upgrades it, and removes it.
func TestDebianPackage(t *testing.T) {
	for _, program := range []string{"dpkg", "dpkg-deb", "systemd-analyze"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%v (Debian: dpkg, systemd)", err)
		}
	}
	m := boot(t)
	first := "quorumlock_1.0.0-1_" + host.arch + ".deb"
	copyFile(t, artifact(t, first), filepath.Join(m.dir, "shared", first))
	second := newer(t, m, filepath.Join(m.dir, "shared", first))

	if out := m.run("dpkg", "-i", "/srv/shared/"+first); !strings.Contains(out, "systemctl enable --now qlockd") {
		t.Errorf("the installation does not say how to go on: %s", out)
	}
	verifyUnit(t, m)
	unit := settings(m.run("cat", unitFile))
	for _, page := range []string{"qlock", "qlockd"} {
		m.run("man", "--where", page)
	}

	s := m.start(unit)
	s.await("WATCHDOG=1")
	if out := m.run("qlock", "run", "orders/42", "--timeout", "30s", "--", "sh", "-c", "echo token $QLOCK_TOKEN"); !strings.Contains(out, "token ") {
		t.Errorf("qlock run: %s", out)
	}
	m.run("qlock", "acquire", "kept", "--ttl", "1h")
	s.stop(m)

	m.run("sh", "-c", "echo 'log-format: json' >> "+configFile)
	if out := m.run("dpkg", "-i", "--force-confold", "/srv/shared/"+second); !strings.Contains(out, "qlock cluster drain") {
		t.Errorf("the upgrade does not say how to go on: %s", out)
	}
	if config := m.run("cat", configFile); !strings.Contains(config, "log-format: json") || strings.Contains(config, "of the newer package") {
		t.Error("the upgrade has changed the configuration")
	}
	s = m.start(unit)
	if out := m.run("qlock", "show", "kept", "--timeout", "30s"); !strings.Contains(out, "held by") {
		t.Errorf("after the upgrade: %s", out)
	}
	s.stop(m)

	m.run("dpkg", "-r", "quorumlock")
	remains(t, m, map[string]bool{"/usr/bin/qlockd": false, "/usr/bin/qlock": false, unitFile: false, configFile: true, stateDir + "/node.json": true})
	m.run("dpkg", "-P", "quorumlock")
	remains(t, m, map[string]bool{configFile: false, stateDir + "/node.json": true})
}

// verifyUnit has systemd check the unit, and the user that it names.
func verifyUnit(t *testing.T, m *machine) {
	t.Helper()
	m.run("getent", "passwd", "quorumlock")
	for line := range strings.Lines(m.run("systemd-analyze", "verify", unitFile)) {
		if strings.Contains(line, "qlockd") {
			t.Errorf("systemd-analyze verify: %s", line)
		}
	}
	m.run("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold="+exposure, unitFile)
}

// settings returns the assignments of a unit; of those that are repeated, the last.
func settings(unit string) map[string]string {
	found := map[string]string{}
	for _, assignment := range regexp.MustCompile(`(?m)^(\w+)=(.*)$`).FindAllStringSubmatch(unit, -1) {
		found[assignment[1]] = assignment[2]
	}
	return found
}

// newer makes a package of the next version, with another configuration.
func newer(t *testing.T, m *machine, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "unpacked")
	command(t, nil, "dpkg-deb", "--raw-extract", name, dir)
	for path, change := range map[string]func(string) string{
		"DEBIAN/control":             func(s string) string { return strings.Replace(s, "Version: 1.0.0-1", "Version: 1.0.1-1", 1) },
		"etc/quorumlock/qlockd.yaml": func(s string) string { return s + "\n# of the newer package\n" },
	} {
		path = filepath.Join(dir, path)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := change(string(text))
		if changed == string(text) {
			t.Fatalf("%s: nothing to change", path)
		}
		if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const built = "newer.deb"
	command(t, nil, "dpkg-deb", "--root-owner-group", "--build", dir, filepath.Join(m.dir, "shared", built))
	return built
}

// remains checks which files there are.
func remains(t *testing.T, m *machine, want map[string]bool) {
	t.Helper()
	for path, there := range want {
		if m.exists(path) != there {
			t.Errorf("%s exists: %v, want %v", path, !there, there)
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(writeFile(to, in, 0o644), in.Close()); err != nil {
		t.Fatal(err)
	}
}
