package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const samplePackage = "./test/mutation/testdata/sample"

func loadSample(t *testing.T) *target {
	t.Helper()
	loaded, err := load("./testdata/sample")
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// TestSitesAreFound compares all sites of the sample package.
func TestSitesAreFound(t *testing.T) {
	var found []string
	for _, s := range loadSample(t).sites {
		found = append(found, fmt.Sprintf("%s, %s: %s", s.function, s.kind, s.text))
	}
	want := []string{
		`Counter.Add, negated: c.Closed`,
		`Counter.Add, operand left out: c.Closed`,
		`Counter.Add, operand left out: c.N >= c.Limit && !c.Seen[name]`,
		`Counter.Add, operand left out: c.N >= c.Limit`,
		`Counter.Add, negated: !c.Seen[name]`,
		`Counter.Add, operand left out: !c.Seen[name]`,
		`Counter.Add, negated: c.N >= c.Limit`,
		`Counter.Add, limit moved: c.N >= c.Limit`,
		`Counter.Add, error becomes nil: fmt.Errorf("%s: %w", name, ErrFull)`,
		`Counter.Add, assignment left out: c.Seen[name] = true`,
		`Counter.Add, assignment left out: c.N++`,
		`Counter.Forget, negated: name == ""`,
		`Counter.Forget, negated: c.Seen[name]`,
		`Counter.Forget, assignment left out: delete(c.Seen, name)`,
		`Counter.Forget, assignment left out: c.N -= 1`,
		`Within, negated: a < b == (b <= c)`,
		`Within, negated: a < b`,
		`Within, limit moved: a < b`,
		`Within, negated: b <= c`,
		`Within, limit moved: b <= c`,
	}
	slices.Sort(found)
	slices.Sort(want)
	if !slices.Equal(found, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
}

// TestSampleIsTried tries all changes of the sample package and compares the survivors with what its tests do
// not check.
func TestSampleIsTried(t *testing.T) {
	loaded, dir := loadSample(t), t.TempDir()
	sites := loaded.sample(100, 1)
	overlay, err := loaded.overlay(dir, sites)
	if err != nil {
		t.Fatal(err)
	}
	o := options{pkg: samplePackage, parallel: 2, budget: time.Minute}
	suites, err := o.build(loaded.Module.Dir, overlay, dir, len(sites))
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := o.chosen(len(sites))
	if err != nil {
		t.Fatal(err)
	}
	results := make([]result, len(sites))
	o.try(suites, numbers, results)
	var left []string
	for i, s := range sites {
		if results[i] == survived || results[i] == missed {
			left = append(left, fmt.Sprintf("%s %s: %s", results[i], s.kind, s.text))
		}
	}
	slices.Sort(left)
	want := []string{
		"not reached limit moved: a < b",
		"not reached limit moved: b <= c",
		"not reached negated: a < b",
		"not reached negated: a < b == (b <= c)",
		"not reached negated: b <= c",
		"survived assignment left out: delete(c.Seen, name)",
	}
	if !slices.Equal(left, want) {
		t.Errorf("left\n%s\nwant\n%s", strings.Join(left, "\n"), strings.Join(want, "\n"))
	}
}

// TestSampleIsSeeded draws samples.
func TestSampleIsSeeded(t *testing.T) {
	loaded := loadSample(t)
	one, again, two := loaded.sample(5, 1), loaded.sample(5, 1), loaded.sample(5, 2)
	if len(one) != 5 || !slices.Equal(one, again) || slices.Equal(one, two) {
		t.Errorf("%v\n%v\n%v", one, again, two)
	}
	if here, elsewhere := len(loadSample(t).of("sample.go").sites), len(loadSample(t).of("other.go").sites); here != len(loaded.sites) || elsewhere != 0 {
		t.Errorf("%d and %d places", here, elsewhere)
	}
}

// TestReport prints a result of each kind.
func TestReport(t *testing.T) {
	sites := []site{
		{file: "/r/a.go", line: 3, function: "f", kind: negate, text: "a ==\n\tb"},
		{file: "/r/a.go", line: 4, function: "f", kind: noError, text: "err"},
		{file: "/r/a.go", line: 5, function: "g", kind: noAssign, text: "x.y = 1"},
	}
	r := report{root: "/r", pkg: "./a", all: 30, sites: sites, results: []result{survived, failed, hung}}
	var out strings.Builder
	if r.print(&out) || !strings.Contains(out.String(), "1 survived, line 3: a.go f, negated: a == b\n\tNO REASON\n") ||
		!strings.Contains(out.String(), "| ./a | 30 | 3 | 2 | 1 | 1 | 0 | 66.7 % |\n1 that were not caught have no reason") {
		t.Error(out.String())
	}
	r.accepted = map[string]string{"a.go f, negated: a == b": "a is always b."}
	if out.Reset(); r.print(&out) || !strings.Contains(out.String(), "\ta is always b.\n") {
		t.Error(out.String(), "and too few are caught")
	}
	r.results[0] = ""
	if out.Reset(); !r.print(&out) {
		t.Error(out.String())
	}
}

// TestReasonsAreCurrent verifies that the place of each documented reason exists in the sources.
func TestReasonsAreCurrent(t *testing.T) {
	if os.Getenv("QUORUMLOCK_CHECK") != "1" {
		t.Skip("make check has this, with QUORUMLOCK_CHECK=1: it type-checks most packages")
	}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			source, _, _ := strings.Cut(string(text), " ")
			pkg := "./" + filepath.ToSlash(filepath.Dir(source))
			loaded, err := load("../../" + pkg)
			if err != nil {
				t.Fatal(err)
			}
			reasons, err := accepted(loaded.Module.Dir, pkg)
			if err != nil || len(reasons) == 0 {
				t.Fatalf("%d reasons: %v; the file has to be named after the package, with - for /", len(reasons), err)
			}
			for _, s := range loaded.sites {
				delete(reasons, s.key(loaded.Module.Dir))
			}
			for what := range reasons {
				t.Errorf("the sources have no such place any more: %s", what)
			}
		})
	}
}

func TestReasonsHaveAForm(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "test", "mutation", "testdata")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"a.go f, negated: x\n\tIt is\n\tso.\n\nb.go g, negated: y\n\tToo.\n": "map[a.go f, negated: x:It is so. b.go g, negated: y:Too.]",
		"a.go f, negated: x\n": "map[]",
	} {
		if err := os.WriteFile(filepath.Join(dir, "server-httpapi.txt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := accepted(root, "./server/httpapi")
		if fmt.Sprint(got) != want || (err != nil) != (want == "map[]") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if got, err := accepted(root, "./fsm"); got != nil || err != nil {
		t.Error(got, err)
	}
}
