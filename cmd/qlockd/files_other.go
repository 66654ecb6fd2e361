//go:build !unix

package main

import "github.com/hashicorp/go-hclog"

// raiseFileLimit does nothing, since this system has no such limit.
func raiseFileLimit(hclog.Logger, int) {}

// hideNewFiles does nothing, since this system has no umask.
func hideNewFiles() {}
