// Package probe asks other nodes for their state, and draws conclusions from their answers: which of them leads,
// which has the longest log, and whether all belong to one cluster.
package probe
