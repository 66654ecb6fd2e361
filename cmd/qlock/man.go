package main

import (
	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/cmd/buildinfo"
	"github.com/quorumlock/quorumlock/cmd/manpage"
)

// manVerb prints the manual page. It is hidden, since packages install the page.
func manVerb() *cli.Command {
	return &cli.Command{
		Name: "man", Usage: "print the manual page", Hidden: true,
		Action: func(c *cli.Context) error {
			if len(arguments(c)) > 0 {
				return usagef("man takes no arguments")
			}
			page := manpage.Page{App: c.App, Section: 1, Version: buildinfo.Read(version).Version, SeeAlso: []string{"qlockd(8)"}}
			if err := page.Write(c.App.Writer); err != nil {
				return failf(exitInternal, "write the manual page: %w", err)
			}
			return nil
		},
	}
}
