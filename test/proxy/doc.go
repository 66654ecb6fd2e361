// Package proxy is a TCP proxy that behaves as bad networks do: it passes bytes on late,
// a few at a time, or not at all, and breaks connections. It counts what it did.
package proxy
