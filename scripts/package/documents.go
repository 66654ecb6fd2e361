package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// completions are the shells for which qlock has completions, and the usual names of their files.
var completions = map[string]string{"bash": "qlock.bash", "zsh": "_qlock", "fish": "qlock.fish", "powershell": "qlock.ps1"}

// document is the path of a document that was made for the release.
func (r *release) document(name string) string { return r.stage("documents", name) }

// documents writes the manual pages and completions, as the programs print them, the changelog, and the licences of the
// libraries.
func (r *release) documents() error {
	if err := os.MkdirAll(r.stage("documents"), 0o755); err != nil {
		return err
	}
	for program, page := range map[string]string{"qlock": "qlock.1", "qlockd": "qlockd.8"} {
		text, err := r.output(program, "man")
		if err != nil {
			return err
		}
		if err := errors.Join(os.WriteFile(r.document(page), text, 0o644), compress(r.document(page+".gz"), text)); err != nil {
			return err
		}
	}
	for shell, name := range completions {
		text, err := r.output("qlock", "completion", shell)
		if err != nil {
			return err
		}
		if err := os.WriteFile(r.document(name), text, 0o644); err != nil {
			return err
		}
	}
	changes, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	licences, err := r.licences()
	if err != nil {
		return err
	}
	return errors.Join(compress(r.document("changelog.gz"), changes), os.WriteFile(r.document("third-party.txt"), licences, 0o644))
}

// output returns what a program prints.
func (r *release) output(program string, args ...string) ([]byte, error) {
	cmd := exec.Command(r.stage(host.dir(), host.executable(program)), args...)
	cmd.Stderr = os.Stderr
	return cmd.Output()
}

// compress writes a text as gzip -n does: without the name and the time.
func compress(name string, text []byte) error {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(name, out.Bytes(), 0o644)
}

// licenceFile matches the names of files with licences and notices.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// licences returns the licences of Go and of all modules that the programs are linked with, on any platform.
func (r *release) licences() ([]byte, error) {
	dirs := map[string]string{} // by module and version
	for _, p := range r.platforms {
		cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}\t{{.Dir}}{{end}}{{end}}", "./cmd/qlock", "./cmd/qlockd")
		cmd.Dir, cmd.Stderr = r.root, os.Stderr
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS="+p.os, "GOARCH="+p.arch)
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("list the modules: %w", err)
		}
		for line := range strings.Lines(string(out)) {
			if name, dir, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
				dirs[name] = dir
			}
		}
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	dirs["Go"] = strings.TrimSpace(string(goroot))
	return licenceTexts(dirs)
}

func licenceTexts(dirs map[string]string) ([]byte, error) {
	var names []string
	for name := range dirs {
		names = append(names, name)
	}
	slices.Sort(names)
	var out bytes.Buffer
	for _, name := range names {
		entries, err := os.ReadDir(dirs[name])
		if err != nil {
			return nil, err
		}
		entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.IsDir() || !licenceFile.MatchString(e.Name()) })
		if len(entries) == 0 {
			return nil, fmt.Errorf("%s has no licence file in %s: find out how it is licensed, and add the file's name", name, dirs[name])
		}
		for _, entry := range entries {
			text, err := os.ReadFile(filepath.Join(dirs[name], entry.Name()))
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&out, "%s, %s:\n\n%s\n\n", name, entry.Name(), bytes.TrimSpace(text))
		}
	}
	return out.Bytes(), nil
}
