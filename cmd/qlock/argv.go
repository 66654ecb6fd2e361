package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
	"github.com/xrash/smetrics"
)

// commandLine is a parsed argv. The library stops parsing flags at the first argument, but users put flags
// after arguments too.
type commandLine struct {
	globals []string // flags of the program, with their values
	verbs   []string // such as "cluster", "add"
	flags   []string // flags of the verb, with their values
	args    []string // arguments before "--"
	tail    []string // arguments after "--", unchanged
	dashes  bool     // there was a "--"
	help    bool     // help was requested

	command *cli.Command // the innermost verb; nil if none was named
	wanting cli.Flag     // the last word, if it is a flag without its value
}

// parse parses words, which are the command line without the program's name. Flags may appear anywhere
// before "--": a verb's own flags after the verb, global flags anywhere.
func parse(app *cli.App, words []string) (*commandLine, error) {
	l, err := scan(app, words)
	if err == nil && l.wanting != nil {
		err = usagef("flag --%s needs a value", l.wanting.Names()[0])
	}
	return l, err
}

// scan is parse for a line that may be incomplete.
func scan(app *cli.App, words []string) (*commandLine, error) {
	l := &commandLine{}
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch {
		case word == "--":
			l.dashes, l.tail = true, words[i+1:]
			return l, nil
		case len(word) > 1 && word[0] == '-':
			taken, err := l.flag(app, words[i:])
			if err != nil {
				return l, err
			}
			i += taken - 1
		default:
			if err := l.word(app, word); err != nil {
				return l, err
			}
		}
	}
	return l, nil
}

// flag consumes the flag at the start of words and returns how many words it took.
func (l *commandLine) flag(app *cli.App, words []string) (int, error) {
	name, _, hasValue := strings.Cut(strings.TrimLeft(words[0], "-"), "=")
	if slices.Contains(cli.HelpFlag.Names(), name) {
		l.help = true
		return 1, nil
	}
	found, list := l.lookup(app, name)
	if found == nil {
		flag, _, _ := strings.Cut(words[0], "=") // the value may be a secret
		return 0, usagef("unknown flag %s%s; see %s --help", flag, l.similarFlag(app, name), l.name(app))
	}
	taken := 1
	if !hasValue && takesValue(found) {
		if len(words) == 1 {
			l.wanting = found
			return 1, nil
		}
		taken = 2
	}
	*list = append(*list, withUnit(found, words[:taken])...)
	return taken, nil
}

// lookup finds a flag, among the verb's own first, and the list it belongs to.
func (l *commandLine) lookup(app *cli.App, name string) (cli.Flag, *[]string) {
	if l.command != nil {
		if f := findFlag(l.command.Flags, name); f != nil {
			return f, &l.flags
		}
	}
	return findFlag(app.Flags, name), &l.globals
}

// word consumes a verb where one is expected, and an argument elsewhere.
func (l *commandLine) word(app *cli.App, word string) error {
	choices := l.choices(app)
	if len(choices) == 0 {
		l.args = append(l.args, word)
		return nil
	}
	for _, c := range choices {
		if c.HasName(word) {
			l.command, l.verbs = c, append(l.verbs, word)
			return nil
		}
	}
	if len(l.verbs) == 0 && (word == "help" || word == "h") {
		l.help = true
		return nil
	}
	return usagef("%s has no verb %q%s; see %s --help", l.name(app), word, similarVerb(choices, word), l.name(app))
}

// withUnit adds the unit to the value of a duration that has none: it is in seconds.
func withUnit(f cli.Flag, words []string) []string {
	if _, ok := f.(*cli.DurationFlag); !ok {
		return words
	}
	words = slices.Clone(words)
	last := &words[len(words)-1]
	name, value, hasValue := strings.Cut(*last, "=")
	if !hasValue {
		name, value = "", *last
	}
	if _, err := strconv.ParseFloat(value, 64); err != nil {
		return words
	}
	if hasValue {
		value = name + "=" + value
	}
	*last = value + "s"
	return words
}

// similarFlag returns the question whether a similar flag was meant, or no text if none is similar.
func (l *commandLine) similarFlag(app *cli.App, name string) string {
	var names []string
	for _, f := range app.Flags {
		names = append(names, f.Names()...)
	}
	if l.command != nil {
		for _, f := range l.command.Flags {
			names = append(names, f.Names()...)
		}
	}
	return didYouMean("--", names, name)
}

func similarVerb(choices []*cli.Command, word string) string {
	var names []string
	for _, c := range choices {
		if !c.Hidden {
			names = append(names, c.Names()...)
		}
	}
	return didYouMean("", names, word)
}

// similar is the least similarity of a suggestion, from 0 to 1.
const similar = 0.8

func didYouMean(prefix string, names []string, word string) string {
	best, suggestion := similar, ""
	for _, name := range names {
		if s := smetrics.JaroWinkler(name, word, 0.7, 4); s > best {
			best, suggestion = s, fmt.Sprintf(": did you mean %s%s?", prefix, name)
		}
	}
	return suggestion
}

// choices returns the verbs that may come next. There are none once arguments are expected.
func (l *commandLine) choices(app *cli.App) []*cli.Command {
	if l.command == nil {
		return app.Commands
	}
	return l.command.Subcommands
}

// name returns the line up to the innermost verb.
func (l *commandLine) name(app *cli.App) string {
	return strings.Join(append([]string{app.Name}, l.verbs...), " ")
}

// argv returns the line in the only order that the library understands. The first "--" ends the flags; a
// second one stays where the user put it.
func (l *commandLine) argv(program string) []string {
	out := append([]string{program}, l.globals...)
	out = append(out, l.verbs...)
	out = append(out, l.flags...)
	if l.help {
		return append(out, "--help") // the library would look for a topic of help in the arguments
	}
	if len(l.verbs) == 0 {
		return out
	}
	out = append(out, "--")
	out = append(out, l.args...)
	if l.dashes {
		out = append(out, "--")
		out = append(out, l.tail...)
	}
	return out
}

// exports reports whether a shell evaluates the output of the line, even if the line itself is invalid.
func (l *commandLine) exports(words []string) bool {
	if l.command == nil || l.command.Name != "acquire" || l.help {
		return false
	}
	if at := slices.Index(words, "--"); at >= 0 {
		words = words[:at]
	}
	return slices.ContainsFunc(words, func(word string) bool {
		name, value, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
		return word[:min(1, len(word))] == "-" && name == "export" && value != "false"
	})
}

// findFlag finds a flag by any of its names.
func findFlag(flags []cli.Flag, name string) cli.Flag {
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

// takesValue reports whether a flag takes a value.
func takesValue(f cli.Flag) bool {
	doc, ok := f.(cli.DocGenerationFlag)
	return ok && doc.TakesValue()
}
