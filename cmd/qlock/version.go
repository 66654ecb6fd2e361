package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

// version is set by the linker in releases.
var version = ""

// buildInfo identifies the build of this program.
type buildInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
}

// build reads what the compiler recorded.
func build() buildInfo {
	b := buildInfo{Version: version, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if ok && b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" {
		b.Version = "(devel)"
	}
	if ok {
		b.Commit = commit(info.Settings)
	}
	return b
}

// commit returns the revision of the build, marked if the tree had changes.
func commit(settings []debug.BuildSetting) string {
	var revision, mark string
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			mark = "+changes"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + mark
}

// versionVerb prints the version.
func versionVerb() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version of this program",
		Action: func(c *cli.Context) error {
			if len(arguments(c)) > 0 {
				return usagef("version takes no arguments")
			}
			return showVersion(c)
		},
	}
}

func showVersion(c *cli.Context) error {
	b := build()
	return show(c, fields{b}, func(w io.Writer) {
		fmt.Fprintf(w, "qlock %s", b.Version)
		if b.Commit != "" {
			fmt.Fprintf(w, " (%s)", b.Commit)
		}
		fmt.Fprintf(w, " %s\n", b.Go)
	})
}
