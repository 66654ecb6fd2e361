package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/cmd/buildinfo"
)

func main() {
	root := flag.String("root", "../..", "the repository")
	out := flag.String("out", "../../bin/package", "the directory to write to; it is emptied first")
	version := flag.String("version", "", "the version of the release; without one, that of the sources")
	platforms := flag.String("platforms", platformNames(allPlatforms), "the platforms to build for")
	flag.Parse()
	if err := run(*root, *out, *version, *platforms); err != nil {
		fmt.Fprintln(os.Stderr, "package:", err)
		os.Exit(1)
	}
}

func run(root, out, version, platforms string) error {
	r := &release{version: cmp.Or(version, buildinfo.Release+"-devel")}
	var err error
	if r.root, err = filepath.Abs(root); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(out); err != nil {
		return err
	}
	if r.platforms, err = parsePlatforms(platforms); err != nil {
		return err
	}
	if r.time, err = sourceTime(r.root); err != nil {
		return err
	}
	r.commit = sourceCommit(r.root)
	return r.write()
}

// sourceCommit returns the commit of the sources, marked if they have changes, as Go marks it. It returns "" if they are in
// no repository.
func sourceCommit(root string) string {
	commit, err := exec.Command("git", "-C", root, "rev-parse", "HEAD").Output()
	if err != nil {
		return ""
	}
	changes, err := exec.Command("git", "-C", root, "status", "--porcelain").Output()
	if err != nil || len(changes) > 0 {
		return strings.TrimSpace(string(commit)) + "+changes"
	}
	return strings.TrimSpace(string(commit))
}

// sourceTime returns the time of all files: SOURCE_DATE_EPOCH, or else the time of the commit.
func sourceTime(root string) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		commit, err := exec.Command("git", "-C", root, "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("ask git for the time of the commit: %w: set SOURCE_DATE_EPOCH to build without a repository", err)
		}
		text = strings.TrimSpace(string(commit))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("the time %q is no number of seconds: correct SOURCE_DATE_EPOCH", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
