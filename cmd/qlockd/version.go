package main

import (
	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/cmd/buildinfo"
)

// version is set by the linker in releases.
var version = ""

func programVersion() string { return buildinfo.Read(version).Version }

// versionVerb prints what --version prints.
func versionVerb() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version and exit", HideHelp: true,
		Action: func(c *cli.Context) error {
			cli.ShowVersion(c)
			return nil
		},
	}
}
