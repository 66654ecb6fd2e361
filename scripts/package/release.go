package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// release is what is packaged, and where.
type release struct {
	root, out string
	// version is the one that the programs print, such as v1.0.0.
	version string
	// commit is empty if the sources are in no repository.
	commit    string
	platforms []platform
	// time is the modification time of all files.
	time time.Time
}

// file is a file in an archive or a package.
type file struct {
	name, source string
	mode         os.FileMode
}

// write writes all artifacts of the release, and their checksums.
func (r *release) write() error {
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return err
	}
	steps := []func(platform) error{r.build, r.archive, r.linuxPackages}
	if err := r.build(host); err != nil { // it prints the documents
		return err
	}
	if err := r.documents(); err != nil {
		return err
	}
	for _, p := range r.platforms {
		for _, step := range steps {
			if err := step(p); err != nil {
				return fmt.Errorf("%s: %w", p, err)
			}
		}
	}
	for _, step := range []func() error{r.image, r.billOfMaterials, r.checksums} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// files is the directory with the sources of what is packaged beside the programs.
func (r *release) files(name string) string {
	return filepath.Join(r.root, "scripts/package/files", name)
}

// stage is the directory with what was built; a subdirectory for each platform.
func (r *release) stage(parts ...string) string {
	return filepath.Join(append([]string{r.out, "build"}, parts...)...)
}

// number is the version without the v of a tag.
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }

// described matches what git describe adds to a tag for later commits and for changes.
var described = regexp.MustCompile(`(-\d+-g[0-9a-f]+)?(-dirty)?$`)

// packageVersion is the version in the order of dpkg and rpm: a preview of a release comes before it (~), and a commit
// after a release comes after it (+).
func (r *release) packageVersion() string {
	later := described.FindString(r.number())
	version := strings.Replace(strings.TrimSuffix(r.number(), later), "-", "~", 1)
	if later != "" {
		version += "+" + strings.TrimPrefix(later, "-")
	}
	return strings.ReplaceAll(version, "-", ".")
}

// checksums writes SHA256SUMS, for sha256sum --check.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		content, err := os.ReadFile(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), entry.Name())
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}
