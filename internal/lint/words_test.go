package lint

import (
	"fmt"
	"go/ast"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// vocabulary lists words that the project does not use, each with its replacement: there is one name for one
// thing, in code, on the wire and in the documents.
var vocabulary = []struct{ not, instead string }{
	{`owner[ _-]id\b`, "session, or owner key"},
	{`lease[ _-]id\b`, "session"},
	{`\bkeep[ -]?alives?\b`, "heartbeat"},
	{`\bzombie\b`, "expired session"},
	{`\bwhom\b`, "the noun"},
	{`\banew\b`, "again"},
	{`\btells (whether|that|how)\b`, "reports"},
}

// private lists words that only this project used, each with the standard term. No identifier contains them.
// The list grows with every word that is replaced.
var private = map[string]string{
	"agenda":    "schedule",
	"beat":      "heartbeat",
	"chair":     "lock state",
	"chase":     "follow",
	"crowd":     "flood, or group",
	"deserted":  "abandoned",
	"detour":    "reroute",
	"dissent":   "divergence",
	"farewell":  "goodbye",
	"flights":   "in flight",
	"forgive":   "extend",
	"gathering": "coalescing",
	"hearing":   "poll",
	"hush":      "stop",
	"lifeline":  "watched connection",
	"limbo":     "undecided",
	"lookout":   "probe",
	"mute":      "silence",
	"nag":       "warn repeatedly",
	"nagging":   "repeat interval",
	"nudge":     "signal",
	"parted":    "separated",
	"patience":  "timeout",
	"rarity":    "extras",
	"reign":     "leadership",
	"seat":      "occupant",
	"settle":    "wait for, deliver or assign",
	"spare":     "free, or reserved",
	"stake":     "owner row",
	"steward":   "reconciler",
	"testify":   "confirm",
	"unsettle":  "close",
	"vigil":     "leader monitor",
	"vouch":     "confirm",
	"weed":      "drop",
	"witness":   "observer",
}

// unfinished matches marks of unfinished work, which belongs into issues.
var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)

var wordRules = []rule{{
	name:  "one word for one thing, and nothing left for later",
	check: words,
	bad: []example{
		{"fsm/fsm.go", "package fsm\n\n// The lease id of the client.\n", "fsm/fsm.go:3: \"lease id\": say session"},
		{"README.md", "Send a keep-alive.\n", "README.md:1: \"keep-alive\": say heartbeat"},
		{"fsm/fsm.go", "package fsm\n\n// TO" + "DO: finish.\n", "fsm/fsm.go:3: unfinished"},
	},
}, {
	name:  "identifiers use standard terms",
	check: identifiers,
	bad: []example{
		{"fsm/fsm.go", "package fsm\n\nvar firstReign = 1\n", "fsm/fsm.go:3: firstReign: say leadership"},
		{"fsm/fsm.go", "package fsm\n\nfunc lookouts() {}\n", "fsm/fsm.go:3: lookouts: say probe"},
	},
}, {
	name:  "links lead somewhere",
	check: links,
	bad: []example{
		{"README.md", "See [the docs](docs/NOWHERE.md#top).\n", "README.md links to docs/NOWHERE.md"},
	},
}}

// words checks comments and documents. It ignores identifiers, since some come from other projects.
func words(t *tree) []string {
	var findings []string
	for _, f := range t.files {
		if f.dir() == "internal/lint" || f.generated {
			continue
		}
		for _, group := range f.ast.Comments {
			line := t.fset.Position(group.Pos()).Line
			var text strings.Builder
			for _, comment := range group.List {
				text.WriteString(comment.Text + "\n")
			}
			findings = append(findings, wordsOf(f.path, line, text.String())...)
		}
	}
	for name, text := range t.docs {
		findings = append(findings, wordsOf(name, 1, string(text))...)
	}
	slices.Sort(findings)
	return findings
}

func wordsOf(name string, line int, text string) []string {
	var findings []string
	for row := range strings.Lines(text) {
		for _, word := range vocabulary {
			found := regexp.MustCompile(`(?i)(TCP )?` + word.not).FindString(row)
			if found != "" && !strings.HasPrefix(found, "TCP ") {
				findings = append(findings, fmt.Sprintf("%s:%d: %q: say %s", name, line, found, word.instead))
			}
		}
		if unfinished.MatchString(row) {
			findings = append(findings, fmt.Sprintf("%s:%d: unfinished: %s", name, line, strings.TrimSpace(row)))
		}
		line++
	}
	return findings
}

// part matches one word of an identifier.
var part = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)

// identifiers looks for private words in the names that the project's files contain.
func identifiers(t *tree) []string {
	var findings []string
	for _, f := range t.files {
		if f.dir() == "internal/lint" || f.generated {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				if instead := standard(id.Name); instead != "" {
					findings = append(findings, fmt.Sprintf("%s: %s: say %s", t.at(f, id), id.Name, instead))
				}
			}
			return true
		})
	}
	return findings
}

// standard returns the term to use instead of a private word in name, or "" if there is none.
func standard(name string) string {
	for _, word := range part.FindAllString(name, -1) {
		word = strings.ToLower(word)
		for _, form := range []string{word, strings.TrimSuffix(word, "s")} {
			if instead, ok := private[form]; ok {
				return instead
			}
		}
	}
	return ""
}

var link = regexp.MustCompile(`\]\(([^)\s#:]+)(#[^)]*)?\)`)

// links checks the relative links of the documents.
func links(t *tree) []string {
	var findings []string
	for name, text := range t.docs {
		for _, found := range link.FindAllSubmatch(text, -1) {
			target := path.Join(path.Dir(name), string(found[1]))
			if _, err := fs.Stat(t.fsys, target); err != nil {
				findings = append(findings, fmt.Sprintf("%s links to %s, which is not there", name, target))
			}
		}
	}
	slices.Sort(findings)
	return findings
}
