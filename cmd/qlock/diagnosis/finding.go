package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
)

// Severity is how bad a finding is. The numbers are the exit codes of both verbs.
type Severity int

// The severities. Unknown is for monitoring systems: nothing could be found out.
const (
	OK Severity = iota
	Warning
	Critical
	Unknown
)

// String returns the name that monitoring systems expect.
func (s Severity) String() string {
	return [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[s]
}

// MarshalText makes the name the form in JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is one thing that is wrong.
type Finding struct {
	Severity Severity `json:"severity"`
	// Node is the node that it concerns; empty for the cluster.
	Node string `json:"node"`
	// What is wrong, and what to Do.
	What string `json:"what"`
	Do   string `json:"do"`
}

// Worst returns the highest severity.
func Worst(findings []Finding) Severity {
	worst := OK
	for _, f := range findings {
		worst = max(worst, f.Severity)
	}
	return worst
}

// Sort puts the worst findings first, and keeps the order of the others.
func Sort(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Compare(b.Severity, a.Severity) })
}

// found appends a finding.
func found(findings *[]Finding, severity Severity, node, what, do string) {
	*findings = append(*findings, Finding{Severity: severity, Node: node, What: what, Do: do})
}

// plural returns a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
