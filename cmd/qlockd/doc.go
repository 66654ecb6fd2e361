// Command qlockd runs one node of a Quorumlock cluster.
//
// The node itself is package server. This package contains what the process needs around it: flags with
// their environment variables and configuration file (flags.go, file.go, config.go), a temporary node for
// trying things out (dev.go), logging (logging.go), signals and exit (serve.go, exit.go), notifications for
// systemd (notify.go), and the pacing of Go's garbage collector (garbage.go).
//
// A setting is taken from its flag, or else from its variable QLOCKD_<FLAG>, or else from the file given
// with --config, or else from its default.
package main
