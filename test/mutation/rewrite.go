package main

import (
	"cmp"
	"fmt"
	"go/token"
	"slices"
	"strings"
)

// compare are the functions that replace a comparison whose limit moves.
var compare = map[token.Token]string{
	token.LSS: "mutationLess", token.LEQ: "mutationLessEqual",
	token.GTR: "mutationGreater", token.GEQ: "mutationGreaterEqual",
}

// wrap returns the text to insert before and after the site, so that the environment variable decides whether
// site n is changed.
func (s site) wrap(n int) (before, behind string) {
	switch s.kind {
	case negate:
		return fmt.Sprintf("(mutationOn(%d) != (", n), "))"
	case leaveOut:
		if s.operator == token.LAND {
			return fmt.Sprintf("(mutationOn(%d) || (", n), "))"
		}
		return fmt.Sprintf("(!mutationOn(%d) && (", n), "))"
	case boundary:
		return fmt.Sprintf("%s(%d, ", compare[s.operator], n), ")"
	case noError:
		return fmt.Sprintf("mutationError(%d, ", n), ")"
	default:
		return fmt.Sprintf("if !mutationOn(%d) { ", n), " }"
	}
}

// depth orders edits of the same text: a comparison whose limit moves must not be split by others.
func (k kind) depth() int { return slices.Index([]kind{leaveOut, negate, boundary}, k) }

// edit replaces cut bytes at an offset.
type edit struct {
	at, cut int
	text    string
	opens   bool
	// other is the offset of the site's other end.
	other, depth int
}

// order sorts edits by position. At the same position, ends come before beginnings, inner ends before outer
// ones, and outer beginnings before inner ones.
func (e edit) order(o edit) int {
	if e.at != o.at || e.opens != o.opens {
		return cmp.Or(cmp.Compare(e.at, o.at), map[bool]int{true: 1, false: -1}[e.opens])
	}
	byDepth := cmp.Compare(e.depth, o.depth)
	if !e.opens {
		byDepth = -byDepth
	}
	return cmp.Or(cmp.Compare(o.other, e.other), byDepth)
}

// rewrite returns a source in which the sites can be switched. numbers contains their numbers.
func rewrite(source string, sites []site, numbers []int) string {
	var edits []edit
	for i, s := range sites {
		before, behind := s.wrap(numbers[i])
		edits = append(edits,
			edit{at: s.from, text: before, opens: true, other: s.to, depth: s.kind.depth()},
			edit{at: s.to, text: behind, other: s.from, depth: s.kind.depth()})
		if s.kind == boundary {
			edits = append(edits, edit{at: s.op, cut: len(s.operator.String()), text: ","})
		}
	}
	slices.SortStableFunc(edits, edit.order)
	var out strings.Builder
	at := 0
	for _, e := range edits {
		out.WriteString(source[at:e.at])
		out.WriteString(e.text)
		at = e.at + e.cut
	}
	out.WriteString(source[at:])
	return out.String()
}
