// Package workload runs the same load on each system and returns the measurements.
//
// A [Stage] runs on servers that were started for it: one [Workload] after the other, each with its own locks
// and sessions. stages.go lists them all. A workload produces [Figures], whose names begin with its own.
//
// There is one file per workload: pairs.go, hot.go, idle.go, held.go, full.go. They share sessions.go, which
// opens and closes sessions; loop.go, which runs locks and unlocks in closed loops; window.go, which measures
// time; and order.go, which checks mutual exclusion and order of a contended lock.
package workload
