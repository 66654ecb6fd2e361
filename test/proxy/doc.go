// Package proxy is a TCP proxy that behaves like a bad network: it delays, slows down or stalls bytes, and
// breaks connections. It counts the effects.
package proxy
