// Package schedule makes backups while this node leads: when the schedule says so, with pauses after failures, each of
// them verified before it counts.
package schedule
