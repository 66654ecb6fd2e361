//go:build race

package bubble

// raced reports whether the race detector is enabled.
const raced = true
