// Package bubble runs tests in virtual time, in the bubbles of testing/synctest.
//
// Tests use it instead of synctest because the race detector crashes with two processors in one bubble: the
// runtime gives all timers of a bubble one race context, and uses it from several threads concurrently when a
// goroutine reads a timer's channel while the bubble fires other timers of the same instant. The detector
// then ends the process with a segmentation fault (Go 1.26, golang.org/issue/78156). On one processor this
// does not happen.
package bubble
