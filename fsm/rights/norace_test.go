//go:build !race

package rights

const raced = false
