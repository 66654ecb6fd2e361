//go:build !unix

package main

// raiseFileLimit does nothing, since this system has no such limit.
func raiseFileLimit(int) (warning string) { return "" }

// hideNewFiles does nothing, since this system has no umask.
func hideNewFiles() {}
