//go:build race

package virtual_test

// raced says that the race detector is at work. It takes three times as long, and finds
// its races in any cluster, so that it is given a tenth of them.
const raced = true
