//go:build race

package rights

// raced is true with the race detector, which takes ten times as long. The random policies use only one goroutine.
const raced = true
