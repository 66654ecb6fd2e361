// Package ratelog logs warnings about callers at a limited rate: callers must not be able to fill the disk with
// log lines. It counts what it does not log.
package ratelog
