package report

import (
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock/scripts/compare/system"
)

// Row is one line of the table. Unknown values are null.
type Row struct {
	Workload string  `json:"workload"`
	Figure   string  `json:"figure"`
	Ours     float64 `json:"quorumlock"`
	// Against is what it is compared with, empty if the goal is for the figure itself.
	Against string   `json:"against"`
	Theirs  *float64 `json:"theirs"`
	Ratio   *float64 `json:"ratio"`
	Goal    *float64 `json:"goal"` // for the ratio, or the figure
	AtMost  bool     `json:"atMost"`
	Met     *bool    `json:"met"`

	unit unit
}

// Finish creates the rows from the measurements so far.
func (r *Results) Finish() {
	r.Rows = nil
	for _, m := range measures {
		ours, ok := r.over(m.system, m.figure, m.unit.worth)
		if !ok {
			continue
		}
		for _, against := range m.rivals {
			if row, ok := r.row(m, ours, against); ok {
				r.Rows = append(r.Rows, row)
			}
		}
	}
}

// row compares with one rival. It returns false if there is nothing to compare with.
func (r *Results) row(m measure, ours float64, with rival) (Row, bool) {
	row := Row{Workload: m.what, Figure: m.figure, Ours: ours, AtMost: m.unit.less, unit: m.unit}
	compared := ours
	if with.system != "" {
		figure := with.figure
		if figure == "" {
			figure = m.figure
		}
		theirs, ok := r.over(with.system, figure, m.unit.worth)
		if !ok {
			return Row{}, false
		}
		row.Against, row.Theirs = with.as, &theirs
		if row.Against == "" {
			row.Against = system.Title(with.system)
		}
		if theirs > 0 {
			compared = ours / theirs
			row.Ratio = &compared
		}
	}
	if with.aims {
		met := m.unit.met(compared, with.goal)
		row.Goal = &with.goal
		// Without a ratio, it is unknown whether the goal is met.
		if with.system == "" || row.Ratio != nil {
			row.Met = &met
		}
	}
	return row, true
}

// cells formats the row for the table.
func (row *Row) cells(first bool) []string {
	what, ours := "", ""
	if first {
		what, ours = row.Workload, row.unit.format(row.Ours)
	}
	against, theirs, ratio, goal, met := "–", "–", "–", "–", "–"
	if row.Against != "" {
		against, theirs = row.Against, row.unit.format(*row.Theirs)
	}
	if row.Ratio != nil {
		ratio = Significant(*row.Ratio) + "×"
	}
	switch {
	case row.Goal == nil:
	case row.Against == "":
		goal = row.unit.sign() + row.unit.format(*row.Goal)
	default:
		goal = row.unit.sign() + Short(*row.Goal) + "×"
	}
	if row.Met != nil {
		met = "**missed**"
		if *row.Met {
			met = "met"
		}
	}
	return []string{what, ours, against, theirs, ratio, goal, met}
}

// Table returns the Markdown of all rows.
func (r *Results) Table() string {
	var b strings.Builder
	b.WriteString("| workload | Quorumlock | against | theirs | ratio | goal | |\n")
	b.WriteString("|---|--:|---|--:|--:|--:|---|\n")
	last := ""
	for i := range r.Rows {
		row := &r.Rows[i]
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row.cells(row.Workload != last), " | "))
		last = row.Workload
	}
	return b.String()
}

// cachedNote explains the rows about cached locks.
const cachedNote = "Cached: a client keeps its lock after the unlock and locks it again without a request, as long as nobody else asks for it. " +
	"When somebody does, the lock is recalled, which costs one more commit. The other systems have no cached locks; their figures are those of ordinary ones."

// Markdown returns the table with everything needed to judge it.
func (r *Results) Markdown() string {
	var b strings.Builder
	if r.Smoke {
		b.WriteString("**A trial of the comparison itself: sizes and times are too small for the figures to mean anything.**\n\n")
	}
	b.WriteString(r.Table())
	if len(r.Figures[system.QuorumlockCached]) > 0 {
		b.WriteString("\n" + cachedNote + "\n")
	}
	fmt.Fprintf(&b, "\nRounds: %d, of which the medians count; %.4g s each after %.4g s of warm-up; %s. All servers and the load on one machine: %s.\n",
		r.Rounds, r.WindowSeconds, r.WarmUpSeconds, r.Begun.Format("2 January 2006"), r.Machine)
	if len(r.FsyncMs) > 0 {
		fmt.Fprintf(&b, "Its disk syncs 4 KiB in %s ms (median of %d).\n", Significant(Median(r.FsyncMs)), len(r.FsyncMs))
	}
	b.WriteString("\n")
	for _, s := range system.All("") {
		if version := r.Versions[s.Name()]; version != "" {
			fmt.Fprintf(&b, "- %s: %s\n", s.Title(), version)
		}
	}
	fmt.Fprintf(&b, "\n`%s` measures it again.\n", r.Command)
	for i, failure := range r.Failures {
		if i == 0 {
			b.WriteString("\nWhat failed, and is missing in the medians:\n\n")
		}
		fmt.Fprintf(&b, "- %s\n", strings.ReplaceAll(failure, "\n", "\n  "))
	}
	return b.String()
}
