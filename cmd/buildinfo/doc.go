// Package buildinfo identifies the build of a program: what its subcommand version prints.
package buildinfo
