//go:build !race

package bubble

// raced says that the race detector is at work.
const raced = false
