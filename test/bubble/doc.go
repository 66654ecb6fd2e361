// Package bubble runs tests in virtual time, in the bubbles of testing/synctest.
//
// It stands between the tests and synctest because the race detector does not survive
// two processors in one bubble: the runtime gives all timers of a bubble one context of
// the detector, and uses it from several threads at once when a goroutine asks a timer's
// channel while the bubble fires other timers of the same instant. The detector then ends
// the process by a segmentation fault (Go 1.26, golang.org/issue/78156). On one processor
// they take turns.
package bubble
