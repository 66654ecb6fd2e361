// Package single runs a package's tests against one real node on loopback: what examples
// need, and no more.
package single
