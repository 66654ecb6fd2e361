package main

import (
	"encoding/json"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/cmd/buildinfo"
)

// version is set by the linker in releases.
var version = ""

func programBuild() buildinfo.Info { return buildinfo.Read(version) }

// versionVerb prints what --version prints, or the same as JSON.
func versionVerb() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version and exit", HideHelp: true,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print it as JSON", DisableDefaultText: true}},
		Action: func(c *cli.Context) error {
			if !c.Bool("json") {
				cli.ShowVersion(c)
				return nil
			}
			out := json.NewEncoder(c.App.Writer)
			out.SetIndent("", "  ")
			return out.Encode(programBuild())
		},
	}
}
