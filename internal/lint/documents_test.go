package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fenced matches the Go code blocks of a document.
var fenced = regexp.MustCompile("(?ms)^```go\n(.*?)^```")

// around turns an excerpt into a program. It declares what excerpts may use besides the SDK.
const around = `package main

import (
	"context"
	"log"
	"time"

	"` + module + `/client"
)

var ledger interface {
	Refund(ctx context.Context, order string, token uint64) error
}

var _ = log.Println

var _ = time.Now

func excerpt(ctx context.Context, c *client.Client) error {
%s
	panic("an excerpt may end without return")
}
`

// excerpts type-checks every Go excerpt of a document against the current SDK.
func excerpts(t *testing.T, name, text string) []string {
	t.Helper()
	fset := token.NewFileSet()
	from := compiled(t, fset, "./client")
	var findings []string
	for i, found := range fenced.FindAllStringSubmatch(text, -1) {
		title := fmt.Sprintf("%s, excerpt %d", name, i+1)
		file, err := parser.ParseFile(fset, title, fmt.Sprintf(around, found[1]), parser.SkipObjectResolution)
		if err == nil {
			config := types.Config{Importer: from}
			_, err = config.Check("main", fset, []*ast.File{file}, nil)
		}
		if err != nil {
			findings = append(findings, err.Error())
		}
	}
	return findings
}

func TestDocumentsCompile(t *testing.T) {
	repo, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	if !fenced.Match(repo.docs["README.md"]) {
		t.Error("README.md shows no Go")
	}
	for name, text := range repo.docs {
		// test/migrate compiles and runs the code in the migration pages.
		if fenced.Match(text) && !strings.HasPrefix(name, "docs/migrate/") {
			report(t, excerpts(t, filepath.FromSlash(name), string(text)))
		}
	}
}

func TestDocumentsCompileCanFail(t *testing.T) {
	text := strings.Join([]string{"```go", "_, err := client.Open(ctx)", "return err", "```", ""}, "\n")
	expect(t, excerpts(t, "bad.md", text), "bad.md, excerpt 1")
}
