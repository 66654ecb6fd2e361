package manpage

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Page is a manual page.
type Page struct {
	App     *cli.App
	Section int
	// Version is the version of the program in the footer.
	Version string
	// SeeAlso are other pages, such as qlockd(8).
	SeeAlso []string
}

// Write writes the page.
func (p Page) Write(w io.Writer) error {
	var out bytes.Buffer
	name := p.App.Name
	fmt.Fprintf(&out, ".TH %s %d \"\" %s Quorumlock\n", strings.ToUpper(name), p.Section, argument(name+" "+p.Version))
	fmt.Fprintf(&out, ".SH NAME\n%s \\- %s\n", name, text(p.App.Usage))
	fmt.Fprintf(&out, ".SH SYNOPSIS\n%s", lines(p.App.UsageText))
	if p.App.Description != "" {
		fmt.Fprintf(&out, ".SH DESCRIPTION\n%s\n", text(p.App.Description))
	}
	out.WriteString(".SH OPTIONS\n")
	flags(&out, p.App.Flags)
	if shown := visible(p.App.Commands); len(shown) > 0 {
		out.WriteString(".SH COMMANDS\n")
		commands(&out, shown, "")
	}
	if len(p.SeeAlso) > 0 {
		fmt.Fprintf(&out, ".SH SEE ALSO\n%s\n", text(strings.Join(p.SeeAlso, ", ")))
	}
	_, err := w.Write(out.Bytes())
	return err
}

// commands writes commands with their flags, and the commands below them. path is what is typed before their names.
func commands(out *bytes.Buffer, list []*cli.Command, path string) {
	category := ""
	for _, c := range list {
		if c.Category != category {
			category = c.Category
			heading(out, category)
		}
		fmt.Fprintf(out, ".TP\n.B %s\n%s\n", argument(strings.TrimSpace(path+c.Name+" "+c.ArgsUsage)), text(sentence(c.Usage)))
		if c.Description != "" {
			fmt.Fprintf(out, ".IP\n%s\n", text(c.Description))
		}
		if len(c.Flags) > 0 {
			out.WriteString(".RS\n")
			flags(out, c.Flags)
			out.WriteString(".RE\n")
		}
		commands(out, visible(c.Subcommands), path+c.Name+" ")
	}
}

func visible(list []*cli.Command) []*cli.Command {
	return slices.DeleteFunc(slices.Clone(list), func(c *cli.Command) bool { return c.Hidden })
}

// flags writes flags in their order, each category under its heading.
func flags(out *bytes.Buffer, list []cli.Flag) {
	category := ""
	for _, f := range list {
		documented, ok := f.(cli.DocGenerationFlag)
		if !ok || f == cli.HelpFlag || f == cli.VersionFlag {
			continue
		}
		if in, ok := f.(cli.CategorizableFlag); ok && in.GetCategory() != category {
			category = in.GetCategory()
			heading(out, category)
		}
		flag(out, f.Names(), documented)
	}
}

func flag(out *bytes.Buffer, names []string, f cli.DocGenerationFlag) {
	value, usage := placeholder(f)
	for i, name := range names {
		names[i] = strings.Repeat("-", min(len(name), 2)) + name
	}
	if value != "" {
		value = " " + value
	}
	fmt.Fprintf(out, ".TP\n.B %s\n%s\n", argument(strings.Join(names, ", ")+value), text(sentence(usage)))
	if standard := strings.Trim(f.GetDefaultText(), `"`); standard != "" && f.TakesValue() {
		fmt.Fprintf(out, "Default: %s.\n", text(standard))
	}
	if env := f.GetEnvVars(); len(env) > 0 {
		fmt.Fprintf(out, "Variable: %s.\n", text(strings.Join(env, ", ")))
	}
}

// placeholder returns the name of a flag's value, which its usage has between backquotes, and the usage without them.
func placeholder(f cli.DocGenerationFlag) (value, usage string) {
	usage = f.GetUsage()
	if parts := strings.SplitN(usage, "`", 3); len(parts) == 3 {
		return parts[1], parts[0] + parts[1] + parts[2]
	}
	if f.TakesValue() {
		value = "VALUE"
	}
	return value, usage
}

func heading(out *bytes.Buffer, name string) {
	if name != "" {
		fmt.Fprintf(out, ".SS %s\n", argument(name))
	}
}

// sentence ends a text with a full stop.
func sentence(s string) string {
	if s == "" || strings.ContainsAny(s[len(s)-1:], ".)…") {
		return s
	}
	return s + "."
}

// lines returns a text whose lines are kept, in a fixed-width font.
func lines(s string) string {
	return ".nf\n" + text(s) + "\n.fi\n"
}

// escaped are characters that have a meaning for troff, or that it would print as another one.
var escaped = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "…", "...")

// text escapes a text. A line may not begin like a request.
func text(s string) string {
	var all []string
	for line := range strings.SplitSeq(s, "\n") {
		line = escaped.Replace(line)
		if strings.HasPrefix(line, ".") {
			line = `\&` + line
		}
		all = append(all, line)
	}
	return strings.Join(all, "\n")
}

// argument escapes one argument of a request.
func argument(s string) string {
	return `"` + strings.ReplaceAll(escaped.Replace(s), `"`, `\(dq`) + `"`
}
