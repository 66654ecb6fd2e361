package client

import "context"

// Cluster returns the configuration of a cluster in memory for the examples.
func Cluster() Config { return makeFake(1).config() }

// plain returns a hold's context without the check of the clock. It ends only when the hold is ended.
func plain(h *Hold) context.Context { return h.Context().(*holdContext).Context }
