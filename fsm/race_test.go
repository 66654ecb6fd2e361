//go:build race

package fsm

// raced is true with the race detector, which takes ten times as long. A machine uses only one goroutine,
// so the long run of the random sequences does not use it.
const raced = true
