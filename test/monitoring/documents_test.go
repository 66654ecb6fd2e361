package monitoring_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// headings are those of a runbook, in their order.
var headings = []string{"What it means", "What to look at", "What to do", "Threshold"}

// runbookAt is where a runbook is read that an alert links.
const runbookAt = "https://github.com/quorumlock/quorumlock/blob/main/docs/ops/runbooks/"

// readRunbooks returns the runbooks by name.
func readRunbooks(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(ops, "runbooks", "*"))
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pages[strings.TrimSuffix(filepath.Base(path), ".md")] = string(text)
	}
	return pages
}

func readOps(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(ops, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ruleFindings returns what is wrong with a rule.
func ruleFindings(r rule) (findings []string) {
	found := func(format string, args ...any) {
		findings = append(findings, r.Alert+": "+fmt.Sprintf(format, args...))
	}
	if !regexp.MustCompile(`^Quorumlock[A-Z][A-Za-z]+$`).MatchString(r.Alert) {
		found("the name does not begin with Quorumlock")
	}
	if s := r.Labels["severity"]; len(r.Labels) != 1 || s != "page" && s != "ticket" {
		found("the labels are %v, and not a severity of page or ticket", r.Labels)
	}
	if keys := slices.Sorted(maps.Keys(r.Annotations)); !slices.Equal(keys, []string{"description", "runbook_url", "summary"}) {
		found("the annotations are %v", keys)
	}
	for _, key := range []string{"summary", "description"} {
		if text := r.Annotations[key]; !strings.HasSuffix(text, ".") {
			found("the %s is no sentence: %q", key, text)
		}
	}
	if want := runbookAt + r.Alert + ".md"; r.Annotations["runbook_url"] != want {
		found("runbook_url is %q, and not %q", r.Annotations["runbook_url"], want)
	}
	for _, s := range selectors(r.Expr) {
		if !strings.HasPrefix(s.matchers, `job=~".*quorumlock.*"`) {
			found("%s{%s} does not select the job", s.metric, s.matchers)
		}
	}
	return findings
}

// TestRules checks names, labels, annotations and selectors of the alerts, and that README.md lists them.
func TestRules(t *testing.T) {
	seen, readme := map[string]bool{}, readOps(t, "README.md")
	for _, r := range readRules(t).all() {
		for _, finding := range ruleFindings(r) {
			t.Error(finding)
		}
		if seen[r.Alert] {
			t.Errorf("%s exists twice", r.Alert)
		}
		seen[r.Alert] = true
		if row := fmt.Sprintf("\n| [%s](runbooks/%s.md) | %s | ", r.Alert, r.Alert, r.Labels["severity"]); strings.Count(readme, row) != 1 {
			t.Errorf("README.md does not list %s as %s", r.Alert, r.Labels["severity"])
		}
	}
	if listed := strings.Count(readme, "](runbooks/Q"); listed != len(seen) {
		t.Errorf("README.md lists %d of %d alerts", listed, len(seen))
	}
}

func TestRulesCanFail(t *testing.T) {
	bad := rule{
		Alert: "NoLeader", Expr: `quorumlock_term{job="a"} > 1`, Labels: map[string]string{"severity": "urgent"},
		Annotations: map[string]string{"summary": "No leader", "runbook_url": "elsewhere"},
	}
	if findings := ruleFindings(bad); len(findings) != 7 {
		t.Errorf("%q", findings)
	}
}

// runbookFindings returns what is wrong with the form of a runbook.
func runbookFindings(name, text string) (findings []string) {
	title, _, _ := strings.Cut(text, "\n")
	if title != "# "+name {
		findings = append(findings, fmt.Sprintf("%s: the title is %q", name, title))
	}
	var got []string
	for _, section := range strings.Split(text, "\n## ")[1:] {
		heading, body, _ := strings.Cut(section, "\n")
		got = append(got, heading)
		if strings.TrimSpace(body) == "" {
			findings = append(findings, fmt.Sprintf("%s: %q is empty", name, heading))
		}
	}
	if !slices.Equal(got, headings) {
		findings = append(findings, fmt.Sprintf("%s: the headings are %q, want %q", name, got, headings))
	}
	return findings
}

// TestRunbooks checks that each alert has a runbook, that each runbook has an alert, and their form.
func TestRunbooks(t *testing.T) {
	pages := readRunbooks(t)
	for name, text := range pages {
		for _, finding := range runbookFindings(name, text) {
			t.Error(finding)
		}
	}
	for _, r := range readRules(t).all() {
		if pages[r.Alert] == "" {
			t.Errorf("%s has no runbook", r.Alert)
		}
		delete(pages, r.Alert)
	}
	for name := range pages {
		t.Errorf("the runbook %s has no alert", name)
	}
}

func TestRunbooksCanFail(t *testing.T) {
	text := "# Another\n\n## What it means\n\n## What to do\n\nNothing.\n"
	if findings := runbookFindings("QuorumlockNoLeader", text); len(findings) != 3 {
		t.Errorf("%q", findings)
	}
}

var (
	// inDashboard matches the panels that a runbook names.
	inDashboard = regexp.MustCompile(`In the dashboard: ([^.]*)\.`)
	emphasized  = regexp.MustCompile(`\*([^*]+)\*`)
)

// TestRunbooksNamePanels checks that the dashboard has the panels or rows that runbooks name, by how they begin.
func TestRunbooksNamePanels(t *testing.T) {
	var titles []string
	for _, p := range readDashboard(t).Panels {
		titles = append(titles, p.Title)
	}
	named := 0
	for name, text := range readRunbooks(t) {
		for _, sentence := range inDashboard.FindAllStringSubmatch(text, -1) {
			for _, panel := range emphasized.FindAllStringSubmatch(strings.ReplaceAll(sentence[1], "\n", " "), -1) {
				named++
				if !slices.ContainsFunc(titles, func(title string) bool { return strings.HasPrefix(title, panel[1]) }) {
					t.Errorf("%s: the dashboard has no panel %q", name, panel[1])
				}
			}
		}
	}
	if named < 10 {
		t.Errorf("the runbooks name %d panels", named)
	}
}
