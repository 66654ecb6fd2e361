package client

import "context"

// Cluster is a cluster in memory for the examples.
func Cluster() Config { return makeFake(1).config() }

// plain is a hold's context without the look at the clock: it ends only when the hold was
// ended.
func plain(h *Hold) context.Context { return h.Context().(*holdContext).Context }
