package main

import (
	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/cmd/manpage"
)

// manVerb prints the manual page. It is hidden, since packages install the page.
func manVerb() *cli.Command {
	return &cli.Command{
		Name: "man", Usage: "print the manual page", Hidden: true, HideHelp: true,
		Action: func(c *cli.Context) error {
			return manpage.Page{App: c.App, Section: 8, Version: programBuild().Version, SeeAlso: []string{"qlock(1)"}}.Write(c.App.Writer)
		},
	}
}
