package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// enough is the minimum percentage of a sample that must be caught.
const enough = 90

// report is the result of a sample.
type report struct {
	root, pkg string
	all       int
	sites     []site
	results   []result // empty if not tried
	accepted  map[string]string
}

// print lists the changes that were not caught, and then a line for the table. It reports whether enough were
// caught and the others have reasons.
func (r report) print(w io.Writer) bool {
	unexplained := 0
	for i, s := range r.sites {
		if r.results[i] != survived && r.results[i] != missed {
			continue
		}
		why := r.accepted[s.key(r.root)]
		if why == "" {
			why = "NO REASON"
			unexplained++
		}
		fmt.Fprintf(w, "%d %s, line %d: %s\n\t%s\n", i+1, r.results[i], s.line, s.key(r.root), why)
	}
	caught := count(r.results, failed, hung)
	tried := caught + count(r.results, survived, missed)
	fmt.Fprintf(w, "\n| package | places | sample | caught | of them by a time-out | survived | not reached | caught of all |\n|---|---|---|---|---|---|---|---|\n")
	fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d | %d | %.1f %% |\n", r.pkg, r.all, tried, caught,
		count(r.results, hung), count(r.results, survived), count(r.results, missed), 100*float64(caught)/float64(max(tried, 1)))
	if unexplained > 0 {
		fmt.Fprintf(w, "%d that were not caught have no reason in test/mutation/testdata\n", unexplained)
	}
	return unexplained == 0 && caught*100 >= tried*enough
}

// key identifies a site without its line number, which changes with every edit above it.
func (s site) key(root string) string {
	file, err := filepath.Rel(root, s.file)
	if err != nil {
		file = s.file
	}
	return fmt.Sprintf("%s %s, %s: %s", filepath.ToSlash(file), s.function, s.kind, strings.Join(strings.Fields(s.text), " "))
}
