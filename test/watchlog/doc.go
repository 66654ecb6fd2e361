// Package watchlog is a fake of a node's event log, for tests of the ports.
package watchlog
