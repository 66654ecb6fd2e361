package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/cmd/buildinfo"
)

// version is set by the linker in releases.
var version = ""

// versionVerb prints the version.
func versionVerb() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version of this program, and the feature level that it understands",
		Action: func(c *cli.Context) error {
			if len(arguments(c)) > 0 {
				return usagef("version takes no arguments")
			}
			return showVersion(c)
		},
	}
}

func showVersion(c *cli.Context) error {
	b := buildinfo.Read(version)
	return show(c, fields{b}, func(w io.Writer) { fmt.Fprintf(w, "qlock %s\n", b) })
}
