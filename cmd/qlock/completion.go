package main

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// The scripts pass the words before the cursor to the hidden verb complete, which prints one candidate per
// line. So the scripts do not need to know the verbs.
var (
	//go:embed completion/qlock.bash
	bashScript string
	//go:embed completion/qlock.zsh
	zshScript string
	//go:embed completion/qlock.fish
	fishScript string
	//go:embed completion/qlock.ps1
	powershellScript string
)

// shells are the shells that have a script, in the order in which they are offered.
var shells = []struct{ name, script string }{
	{"bash", bashScript}, {"zsh", zshScript}, {"fish", fishScript}, {"powershell", powershellScript},
}

// completionTimeout is how long a user who pressed Tab waits for lock names.
const completionTimeout = 500 * time.Millisecond

// completionVerb prints the completion script of a shell.
func completionVerb() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a shell completion script: source <(qlock completion bash)",
		ArgsUsage: "bash|zsh|fish|powershell",
		Action: func(c *cli.Context) error {
			chosen := strings.Join(arguments(c), " ")
			for _, shell := range shells {
				if shell.name != chosen {
					continue
				}
				if _, err := io.WriteString(c.App.Writer, shell.script); err != nil {
					return failf(exitInternal, "write the script: %w", err)
				}
				return nil
			}
			return usagef("completion takes one of bash, zsh, fish and powershell")
		},
	}
}

// completeVerb is called by the scripts: qlock complete -- WORD… with the word at the cursor last. It
// prints no errors, because nobody would read them.
func completeVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:   "complete",
		Hidden: true,
		Action: func(c *cli.Context) error {
			_, words, _ := splitDashes(c)
			for _, candidate := range candidates(c, dial, words) {
				if printable(candidate) == candidate { // others would have to be typed differently from how they are shown
					fmt.Fprintln(c.App.Writer, candidate)
				}
			}
			return nil
		},
	}
}

// candidates returns the words that can replace the last one.
func candidates(c *cli.Context, dial dialer, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	before, last := words[:len(words)-1], words[len(words)-1]
	line, err := scan(c.App, before)
	switch {
	case err != nil || line.dashes:
		return nil
	case line.wanting != nil:
		return startingWith(last, flagChoices[line.wanting.Names()[0]])
	case strings.HasPrefix(last, "-"):
		return startingWith(last, flagNames(c.App, line))
	case len(line.choices(c.App)) > 0:
		return startingWith(last, verbNames(line.choices(c.App)))
	}
	return startingWith(last, argumentValues(line, dial, last))
}

// argumentValues returns the values of the next argument, as far as they are known. What the argument is follows
// from the verb's ArgsUsage, such as NAME LIMIT.
func argumentValues(line *commandLine, dial dialer, prefix string) []string {
	kinds := strings.Fields(line.command.ArgsUsage)
	at := len(line.args)
	if len(kinds) > 0 && strings.HasSuffix(kinds[0], "…") {
		at = 0 // it may be repeated
	}
	if at >= len(kinds) {
		return nil
	}
	switch kind := strings.Trim(kinds[at], "[]…"); {
	case strings.Contains(kind, "|"):
		return strings.Split(kind, "|")
	case kind == "NAME" || kind == "PREFIX":
		return lockNames(line, dial, prefix)
	case kind == "TOKEN-ID":
		return tokenIDs(line, dial)
	case kind == "ID" && line.command.Name != "add": // that one takes a new node's
		return nodeNames(line, dial)
	}
	return nil
}

// lockNames returns the locks whose names start with prefix.
func lockNames(line *commandLine, dial dialer, prefix string) (names []string) {
	askAnyNode(line, dial, func(ctx context.Context, svc service) {
		page, _ := svc.ListLocks(ctx, &wire.ListLocksRequest{Prefix: prefix, Stale: true})
		for _, l := range page.GetLocks() {
			names = append(names, l.GetName())
		}
	})
	return names
}

// nodeNames returns the ids of the cluster's nodes.
func nodeNames(line *commandLine, dial dialer) (names []string) {
	askAnyNode(line, dial, func(ctx context.Context, svc service) {
		status, _ := svc.Status(ctx, &wire.StatusRequest{Stale: true})
		for _, n := range status.GetNodes() {
			names = append(names, n.GetId())
		}
	})
	return names
}

// tokenIDs returns the ids of the tokens.
func tokenIDs(line *commandLine, dial dialer) (ids []string) {
	askAnyNode(line, dial, func(ctx context.Context, svc service) {
		answer, _ := svc.ListTokens(ctx, &wire.ListTokensRequest{Stale: true})
		for _, t := range answer.GetTokens() {
			ids = append(ids, t.GetId())
		}
	})
	return ids
}

// askAnyNode asks the cluster that the line itself selects, for a short time.
func askAnyNode(line *commandLine, dial dialer, question func(context.Context, service)) {
	app := &cli.App{Name: "qlock", Flags: globalFlags(), HideHelp: true, ExitErrHandler: func(*cli.Context, error) {},
		Writer: io.Discard, ErrWriter: io.Discard,
		Action: func(c *cli.Context) error {
			return withService(c, dial, func(svc service) error {
				ctx, cancel := context.WithTimeout(c.Context, completionTimeout)
				defer cancel()
				question(ctx, svc)
				return nil
			})
		}}
	_ = app.Run(append([]string{"qlock"}, line.globals...)) // nobody would read the error
}

func verbNames(commands []*cli.Command) []string {
	var names []string
	for _, c := range commands {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return names
}

func flagNames(app *cli.App, line *commandLine) []string {
	flags := app.Flags
	if line.command != nil {
		flags = append(append([]cli.Flag{}, line.command.Flags...), flags...)
	}
	names := []string{"--help"}
	for _, f := range flags {
		if f != cli.HelpFlag {
			names = append(names, "--"+f.Names()[0])
		}
	}
	return names
}

// flagChoices are the values of flags that accept only certain ones.
var flagChoices = map[string][]string{"output": formats, "arrivals": arrivals, "on-lost": onLostNames}

func startingWith(prefix string, words []string) []string {
	var list []string
	for _, w := range words {
		if strings.HasPrefix(w, prefix) {
			list = append(list, w)
		}
	}
	return list
}
