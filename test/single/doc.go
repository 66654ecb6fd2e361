// Package single runs a package's tests against one real node on loopback, as examples need it.
package single
