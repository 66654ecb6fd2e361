// Package report makes of what was measured a table, a chart and JSON.
//
// results.go collects figures over rounds; a figure is worth its median. goals.go says which
// figures are compared, and how far Quorumlock means to be ahead. table.go makes rows and
// their Markdown, chart.go draws the throughputs, with chart.svg.tmpl. machine.go describes
// where all that was measured, since it is true only there.
package report
