package manpage_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/cmd/manpage"
)

func example() *cli.App {
	return &cli.App{
		Name: "tool", Usage: "hold a lock", UsageText: "tool run\n.tool 'x'", Description: "A back\\slash.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "id", Usage: "`NAME` of the node", EnvVars: []string{"TOOL_ID"}, Category: "1. The node"},
			&cli.IntFlag{Name: "keep", Usage: "number of backups", Value: 14, Category: "2. Backups"},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FORMAT`", Value: "table"},
			cli.HelpFlag,
		},
		Commands: []*cli.Command{
			{Name: "run", ArgsUsage: "NAME", Usage: "run it", Category: "Hold", Flags: []cli.Flag{&cli.BoolFlag{Name: "try", Usage: `say "no"`}}},
			{Name: "cluster", Usage: "change members", Subcommands: []*cli.Command{{Name: "add", ArgsUsage: "ID", Usage: "add a node"}}},
			{Name: "complete", Hidden: true, Usage: "secret"},
		},
	}
}

const want = `.TH TOOL 8 "" "tool v1.0.0" Quorumlock
.SH NAME
tool \- hold a lock
.SH SYNOPSIS
.nf
tool run
\&.tool \(aqx\(aq
.fi
.SH DESCRIPTION
A back\eslash.
.SH OPTIONS
.SS "1. The node"
.TP
.B "\-\-id NAME"
NAME of the node.
Variable: TOOL_ID.
.SS "2. Backups"
.TP
.B "\-\-keep VALUE"
number of backups.
Default: 14.
.TP
.B "\-\-output, \-o FORMAT"
FORMAT.
Default: table.
.SH COMMANDS
.SS "Hold"
.TP
.B "run NAME"
run it.
.RS
.TP
.B "\-\-try"
say "no".
.RE
.TP
.B "cluster"
change members.
.TP
.B "cluster add ID"
add a node.
.SH SEE ALSO
other(1)
`

func TestPage(t *testing.T) {
	var out strings.Builder
	page := manpage.Page{App: example(), Section: 8, Version: "v1.0.0", SeeAlso: []string{"other(1)"}}
	if err := page.Write(&out); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// TestPageIsFormatted verifies that groff, if it is installed, formats a page without a warning, and that what it shows
// has every character of the usage texts.
func TestPageIsFormatted(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is not installed")
	}
	var page, warnings strings.Builder
	if err := (manpage.Page{App: example(), Section: 8, Version: "v1.0.0"}).Write(&page); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(groff, "-man", "-ww", "-Tascii", "-P-cbou")
	cmd.Stdin, cmd.Stderr = strings.NewReader(page.String()), &warnings
	out, err := cmd.Output()
	if err != nil || warnings.Len() > 0 {
		t.Errorf("%v: %s", err, warnings.String())
	}
	for _, part := range []string{"\n.tool 'x'\n", `A back\slash.`, "--output, -o FORMAT", `say "no".`} {
		if !strings.Contains(strings.ReplaceAll(string(out), "       ", ""), part) {
			t.Errorf("the formatted page lacks %q:\n%s", part, out)
		}
	}
}
