// Package report turns measurements into a table, a chart and JSON.
//
// results.go collects figures over rounds; usually a figure's value is its median. goals.go defines which
// figures are compared, and the goals for Quorumlock's lead. table.go creates rows and their Markdown,
// chart.go draws the throughputs, with chart.svg.tmpl. machine.go describes the machine, since the results
// are valid only there.
package report
