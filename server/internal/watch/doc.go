// Package watch serves watches of the events that a node has applied. Package eventlog keeps the events.
package watch
