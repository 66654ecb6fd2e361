// Package wirecall makes the calls of a *client.Client in the format of the public schema: reads, operator
// actions and watches. Package client exports only its own types; package client/admin converts the answers
// of this package to such types, and qlock prints them as JSON.
//
// Package client sets the functions Do, Next and WatchAudit when it is initialised, so that it does not have to
// export them.
package wirecall
