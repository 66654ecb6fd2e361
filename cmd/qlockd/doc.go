// Command qlockd runs one node of a Quorumlock cluster.
//
// Everything it does is done by package server; what is here is what a process needs
// around that: flags with their environment variables and a file (flags.go, file.go,
// config.go), a throw-away node for trying things (dev.go), logs (logging.go), signals and
// the end (serve.go, exit.go), the Go runtime's garbage (garbage.go).
//
// A setting is taken from its flag, else from its variable QLOCKD_<FLAG>, else from the
// file given with --config, else from its default.
package main
