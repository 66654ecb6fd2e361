//go:build race

package fsm

// raced says that the race detector is at work, which takes ten times as long. One
// machine has one goroutine, so the long run of the random sequences does without it.
const raced = true
