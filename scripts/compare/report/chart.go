package report

import (
	_ "embed" // for the template
	"fmt"
	"strings"
	"text/template"

	"github.com/quorumlock/quorumlock/scripts/compare/system"
)

//go:embed chart.svg.tmpl
var chartText string

var chartTemplate = template.Must(template.New("chart").Parse(chartText))

// Dimensions of the chart, in pixels.
const (
	chartWidth  = 840
	chartTop    = 64  // top of the first group
	columnWidth = 410 // width of each of the two columns
	labelWidth  = 92  // of a bar's label, on its left
	valueWidth  = 72  // of its value, on its right
	barStep     = 18
	barHeight   = 13
	groupHead   = 24 // height of a group's title
	groupGap    = 14 // between groups
	captionGap  = 10
)

// shown are the systems in the chart: the replicated ones, with short names.
var shown = []struct{ system, label string }{
	{system.Quorumlock, "Quorumlock"}, {etcd, "etcd"}, {zookeeper, "ZooKeeper"}, {redlock, "Redlock ×5"},
}

// columns are the chart's groups: throughputs, each with its own scale.
var columns = [2][]struct{ title, figure string }{{
	{"Pairs a second, 1 client", "pairs/1/perSecond"},
	{"16 clients", "pairs/16/perSecond"},
	{"128 clients", "pairs/128/perSecond"},
	{"1,024 clients", "pairs/1024/perSecond"},
}, {
	{"Hand-overs a second of one lock, 16 clients", "hot/16/perSecond"},
	{"128 clients", "hot/128/perSecond"},
	{"1,000 clients", "hot/1000/perSecond"},
	{"Pairs a second, 1,024 clients on 16 connections", "shared/perSecond"},
}}

// bar is one bar of the chart.
type bar struct {
	Label, Value, Class string
	X, Y, Width         int
}

// Right returns the position of the value.
func (b bar) Right() int { return b.X + b.Width + 6 }

// Text returns the baseline of label and value.
func (b bar) Text() int { return b.Y + barHeight - 2 }

// Left returns the right end of the label.
func (b bar) Left() int { return b.X - 6 }

// heading is a group's title.
type heading struct {
	Title string
	X, Y  int
}

// drawing is the input of the template.
type drawing struct {
	Width, Height, BarHeight int
	Subtitle                 string
	Caption, Description     string
	CaptionY                 int
	Headings                 []heading
	Bars                     []bar
}

// Chart draws the throughputs as an SVG that is readable on light and dark backgrounds.
func (r *Results) Chart() (string, error) {
	d := drawing{Width: chartWidth, BarHeight: barHeight}
	bottom := chartTop
	for i, groups := range columns {
		y := chartTop
		for _, g := range groups {
			y = r.group(&d, g.title, g.figure, 10+i*(columnWidth+10), y)
		}
		bottom = max(bottom, y)
	}
	d.CaptionY = bottom + captionGap
	d.Height = d.CaptionY + 16
	d.Subtitle = fmt.Sprintf("Longer is faster; each group has a scale of its own. Rounds: %d, of which the medians count.", r.Rounds)
	if r.Smoke {
		d.Subtitle = "A trial of the comparison itself: the figures mean nothing."
	}
	d.Caption = fmt.Sprintf("%s, servers and load on one machine: %s", r.Begun.Format("2 January 2006"), r.Machine)
	var b strings.Builder
	if err := chartTemplate.Execute(&b, escaped(d)); err != nil {
		return "", err
	}
	return b.String(), nil
}

// group draws the bars of one figure below y, and returns where the next group begins.
func (r *Results) group(d *drawing, title, figure string, x, y int) int {
	var bars []bar
	var values []float64
	most := 0.0
	for _, s := range shown {
		if value, ok := r.over(s.system, figure, Median); ok {
			bars = append(bars, bar{Label: s.label, Value: grouped(value), Class: s.system, X: x + labelWidth})
			values = append(values, value)
			most = max(most, value)
		}
	}
	if len(bars) == 0 || most <= 0 {
		return y
	}
	d.Headings = append(d.Headings, heading{title, x, y + 12})
	y += groupHead
	for i := range bars {
		bars[i].Y = y
		bars[i].Width = max(1, int(values[i]/most*(columnWidth-labelWidth-valueWidth)))
		y += barStep
	}
	d.Bars = append(d.Bars, bars...)
	return y + groupGap
}

// escaped escapes the texts for XML, and adds a description of the chart for screen readers.
func escaped(d drawing) drawing {
	var said []string
	for _, b := range d.Bars {
		said = append(said, b.Label+" "+b.Value)
	}
	d.Description = template.HTMLEscapeString(strings.Join(said, ", "))
	d.Caption = template.HTMLEscapeString(d.Caption)
	return d
}
