//go:build mutants

package mutants

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// row is the result for a bug.
type row struct {
	bug     string
	catcher catcher
	tries   int
	why     string
	err     error
	took    time.Duration
}

// report collects the rows.
type report struct {
	began time.Time
	mu    sync.Mutex // guards rows
	rows  []row
}

func (r *report) add(one row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, one)
	fmt.Println(one)
}

func (r row) String() string {
	if r.err != nil {
		return fmt.Sprintf("NOT CAUGHT: %s: %v", r.bug, r.err)
	}
	return fmt.Sprintf("caught: %s, by %s, after %.1fs", r.bug, r.catcher, r.took.Seconds())
}

// widest is how many characters of a failure's first line the table shows.
const widest = 100

func (r *report) print() {
	slices.SortFunc(r.rows, func(a, b row) int { return cmp.Compare(a.bug, b.bug) })
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "\nbug\tcaught by\ttries\ttook\tit said")
	caught, most := 0, 0
	for _, one := range r.rows {
		by, why := one.catcher.String(), one.why
		if one.err != nil {
			by, why = "NOT CAUGHT", "see above"
		} else {
			caught, most = caught+1, max(most, one.tries)
		}
		fmt.Fprintf(out, "%s\t%s\t%d\t%.1fs\t%s\n", one.bug, by, one.tries, one.took.Seconds(), cut(why))
	}
	_ = out.Flush()
	fmt.Printf("\n%d of %d seeded bugs caught, each in at most %d tries, in %v\n", caught, len(r.rows), most, time.Since(r.began).Round(time.Second))
}

// cut truncates a line to widest characters.
func cut(line string) string {
	if runes := []rune(line); len(runes) > widest {
		return string(runes[:widest]) + "…"
	}
	return line
}
