package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

func main() {
	grown, compared, err := judge(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	for _, g := range grown {
		fmt.Printf("%s allocates more than it did: %s %s, before %s\n", g.name, format(g.head), g.unit, format(g.base))
	}
	if len(grown) > 0 {
		os.Exit(1)
	}
	fmt.Printf("no allocations have been added to %d benchmarks\n", compared)
}

// growth is a benchmark that allocates more than before, per operation.
type growth struct {
	name, unit string
	base, head float64
}

// judge reads benchstat's tables. compared is the number of benchmarks that both commits have.
func judge(tables io.Reader) (grown []growth, compared int, err error) {
	rows := csv.NewReader(tables)
	rows.FieldsPerRecord = -1
	pkg, unit := "", ""
	for {
		row, err := rows.Read()
		if err == io.EOF {
			return grown, compared, nil
		}
		if err != nil {
			return nil, 0, err
		}
		if name, ok := strings.CutPrefix(row[0], "pkg: "); ok {
			pkg = name
		}
		if row[0] == "" && len(row) > 2 && row[2] == "CI" {
			unit = row[1]
		}
		g, ok, err := comparison(row, unit)
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", pkg, err)
		}
		if ok && unit == "allocs/op" {
			compared++
		}
		if ok && row[5] != "~" && g.grew() {
			g.name = pkg + " " + g.name
			grown = append(grown, g)
		}
	}
}

// comparison parses a row that compares both sides. ok is false if one of them is missing. The columns are
// the name, two medians with the width of their intervals, the difference ("~" if it is not significant), and
// its p-value.
func comparison(row []string, unit string) (g growth, ok bool, err error) {
	if len(row) != 7 || !strings.HasPrefix(row[6], "p=") {
		return growth{}, false, nil
	}
	g = growth{name: row[0], unit: unit}
	if g.base, err = strconv.ParseFloat(row[1], 64); err != nil {
		return growth{}, false, err
	}
	g.head, err = strconv.ParseFloat(row[3], 64)
	return g, err == nil, err
}

// grew tolerates random variation in the memory of growing tables, and in thousands of allocations. A single
// additional allocation is too many if there are few.
func (g growth) grew() bool {
	more := g.head - g.base
	switch g.unit {
	case "allocs/op":
		return more >= 1 && more > g.base/200
	case "B/op":
		return more >= 16 && more > g.base/33
	}
	return false
}

func format(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
