package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
)

// Where packages install the unit and the configuration, and where nodes keep their data.
const (
	unitFile   = "/usr/lib/systemd/system/qlockd.service"
	configFile = "/etc/quorumlock/qlockd.yaml"
	stateDir   = "/var/lib/quorumlock"
)

// built is the directory with a release for Linux, which all tests share.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// artifact returns the path of a file of the release.
func artifact(t *testing.T, name string) string {
	t.Helper()
	if host.os != "linux" {
		t.Skip("the packages that this test examines are for Linux")
	}
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "package-"); built.err == nil {
			built.err = run("../..", built.dir, "v1.0.0", "linux/"+host.arch)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	path := filepath.Join(built.dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPackageVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.0.0": "1.0.0", "v1.0.0-devel": "1.0.0~devel", "v1.1.0-rc.1": "1.1.0~rc.1", "v1.0.0-dirty": "1.0.0+dirty",
		"v1.0.0-12-g0a1b2c3": "1.0.0+12.g0a1b2c3", "v1.1.0-rc.1-12-g0a1b2c3-dirty": "1.1.0~rc.1+12.g0a1b2c3.dirty",
	} {
		if got := (&release{version: version}).packageVersion(); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}

// TestArchive verifies what the archive has, and that the programs in it know their version.
func TestArchive(t *testing.T) {
	dir := t.TempDir()
	untar(t, artifact(t, "quorumlock-1.0.0-"+host.dir()+".tar.gz"), dir)
	base := filepath.Join(dir, "quorumlock-1.0.0-"+host.dir())
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "third-party.txt", "qlockd.yaml", "man/qlock.1", "man/qlockd.8",
		"completions/qlock.bash", "completions/_qlock", "completions/qlock.fish", "completions/qlock.ps1"} {
		if info, err := os.Stat(filepath.Join(base, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	commit := strings.TrimSpace(command(t, nil, "git", "rev-parse", "HEAD"))
	for _, program := range []string{"qlock", "qlockd"} {
		out, err := exec.Command(filepath.Join(base, program), "--version").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "v1.0.0 ("+commit) {
			t.Errorf("%s --version: %v: %s", program, err, out)
		}
	}
	licences, err := os.ReadFile(filepath.Join(base, "third-party.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{"\nGo, LICENSE:", "github.com/hashicorp/raft v", "Mozilla Public License"} {
		if !strings.Contains("\n"+string(licences), module) {
			t.Errorf("third-party.txt lacks %q", module)
		}
	}
}

// untar unpacks an archive, compressed or not.
func untar(t *testing.T, name, dir string) {
	t.Helper()
	in, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	content := io.Reader(in)
	if strings.HasSuffix(name, ".gz") {
		if content, err = gzip.NewReader(in); err != nil {
			t.Fatal(err)
		}
	}
	if err := extract(content, dir); err != nil {
		t.Fatal(err)
	}
}

// extract writes the directories and files of a tar file, with their owners if this process is root.
func extract(content io.Reader, dir string) error {
	for in := tar.NewReader(content); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(header.Name))
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = writeFile(path, in, os.FileMode(header.Mode))
		}
		if err == nil && os.Getuid() == 0 {
			err = os.Lchown(path, header.Uid, header.Gid)
		}
		if err != nil {
			return err
		}
	}
}

func writeFile(path string, content io.Reader, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, out.Close())
}

// TestChecksums verifies that SHA256SUMS has every file, and that sha256sum accepts it.
func TestChecksums(t *testing.T) {
	sums := artifact(t, "SHA256SUMS")
	text, err := os.ReadFile(sums)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Dir(sums))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if name := entry.Name(); !entry.IsDir() && name != "SHA256SUMS" && !strings.Contains(string(text), "  "+name+"\n") {
			t.Errorf("%s has no checksum", name)
		}
	}
	cmd := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	cmd.Dir = filepath.Dir(sums)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestBillOfMaterials verifies that the bill names the programs by their checksums, and the libraries that they use.
func TestBillOfMaterials(t *testing.T) {
	in, err := os.Open(artifact(t, "quorumlock-1.0.0.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var bill cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(in, cyclonedx.BOMFileFormatJSON).Decode(&bill); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(filepath.Join(built.dir, "build", host.dir(), "qlockd"))
	if err != nil {
		t.Fatal(err)
	}
	hash := fmt.Sprintf("%x", sha256.Sum256(program))
	found := slices.ContainsFunc(*bill.Components, func(c cyclonedx.Component) bool {
		return c.Name == "qlockd" && c.Hashes != nil && (*c.Hashes)[0].Value == hash
	})
	if !found {
		t.Errorf("the bill has no qlockd with the checksum %s", hash)
	}
	for _, dependency := range *bill.Dependencies {
		for _, library := range []string{"pkg:golang/std@1.", "pkg:golang/github.com/urfave/cli/v2@v"} {
			if !slices.ContainsFunc(*dependency.Dependencies, func(ref string) bool { return strings.HasPrefix(ref, library) }) {
				t.Errorf("%s does not use %s", dependency.Ref, library)
			}
		}
	}
}

// TestReproducible verifies that two builds of a commit, in a clone and in a linked worktree elsewhere, without a common
// cache, write the same bytes.
func TestReproducible(t *testing.T) {
	if host.os != "linux" {
		t.Skip("it builds for Linux")
	}
	dir := t.TempDir()
	packager := filepath.Join(dir, "packager")
	command(t, nil, "go", "build", "-o", packager, ".")
	var sums [2]string
	clones := []string{filepath.Join(dir, "a"), filepath.Join(dir, "another", "directory")}
	command(t, nil, "git", "clone", "--quiet", "--no-hardlinks", "../..", clones[0])
	command(t, nil, "git", "-C", clones[0], "worktree", "add", "--quiet", "--detach", clones[1])
	for i, clone := range clones {
		cache := ""
		if i > 0 { // the first build uses that of this machine
			cache = "GOCACHE=" + filepath.Join(dir, "cache")
		}
		cmd := exec.Command(packager, "-root", clone, "-out", filepath.Join(clone, "bin/package"), "-platforms", "linux/"+host.arch)
		cmd.Env = append(os.Environ(), cache)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		text, err := os.ReadFile(filepath.Join(clone, "bin/package/SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = string(text)
	}
	if sums[0] != sums[1] || strings.Count(sums[0], "\n") != 5 {
		t.Errorf("the first build wrote\n%s\nthe second\n%s", sums[0], sums[1])
	}
}

// command runs a command and returns what it prints.
func command(t *testing.T, prefix []string, name string, args ...string) string {
	t.Helper()
	all := append(append(slices.Clone(prefix), name), args...)
	out, err := exec.Command(all[0], all[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(all, " "), err, out)
	}
	return string(out)
}
