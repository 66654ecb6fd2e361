package client

// Cluster is a cluster in memory for the examples.
func Cluster() Config { return makeFake(1).config() }
