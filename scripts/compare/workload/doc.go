// Package workload loads systems, each in the same way, and says what came of it.
//
// A [Stage] is what is done to servers that were started for it: one [Workload] after the
// other, each with locks and sessions of its own. stages.go lists them all. A workload makes
// [Figures], whose names begin with its own.
//
// There is one file for each workload: pairs.go, hot.go, idle.go, held.go, full.go. What they
// share: crowd.go opens and closes sessions, loop.go has them lock and unlock in closed
// loops, window.go is the time that counts, order.go looks on whether a contested lock keeps
// its word.
package workload
