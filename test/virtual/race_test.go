//go:build race

package virtual_test

// raced reports whether the race detector is enabled. It is three times as slow, and finds races in any
// cluster, so it runs only a tenth of them.
const raced = true
