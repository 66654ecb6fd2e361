// Package retired keeps the reason why a node has stopped for good, so that every later start on its data directory
// fails with the same error. Starting it again would not help: the reason is in its data.
package retired
