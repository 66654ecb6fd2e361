//go:build !unix

package recovery

// giveTo does nothing where files have no owner by number.
func giveTo(string, string) error { return nil }
