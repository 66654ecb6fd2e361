package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// unit defines how a figure is formatted, whether less of it is better, and how its value over all rounds is
// computed.
type unit struct {
	less   bool
	format func(float64) string
	worth  func([]float64) float64
}

var (
	perSecond    = unit{false, grouped, Median}
	milliseconds = unit{true, inMilliseconds, Median}
	bytes        = unit{true, inBytes, Median}
	// faults are events of which a single one in any round is too many.
	faults = unit{true, grouped, slices.Max[[]float64]}
)

// sign returns the prefix of a goal.
func (u unit) sign() string {
	if u.less {
		return "≤ "
	}
	return "≥ "
}

// met reports whether a value meets its goal.
func (u unit) met(value, goal float64) bool {
	if u.less {
		return value <= goal
	}
	return value >= goal
}

// grouped formats a whole number with commas.
func grouped(x float64) string {
	digits := fmt.Sprintf("%.0f", math.Abs(x))
	var b strings.Builder
	if math.Round(x) < 0 {
		b.WriteByte('-')
	}
	for i, digit := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	return b.String()
}

func inMilliseconds(x float64) string { return Significant(x) + " ms" }

func inBytes(x float64) string {
	if math.Abs(x) < 4096 {
		return grouped(x) + " B"
	}
	return Significant(x/1024) + " KiB"
}

// Significant formats a number with three digits, or more if its integer part has more.
func Significant(x float64) string {
	switch size := math.Abs(x); {
	case size >= 100:
		return grouped(x)
	case size >= 10:
		return fmt.Sprintf("%.1f", x)
	case size >= 1:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.3f", x)
}

// Short formats a goal, which has few digits.
func Short(x float64) string { return strings.TrimSuffix(fmt.Sprintf("%g", x), ".0") }
