//go:build !race

package virtual_test

const raced = false
