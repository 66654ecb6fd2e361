// Program bench is the gate of "make bench": it reads the table that benchstat has made
// of two commits' benchmarks, as CSV, and fails if one of them allocates more than it did.
//
// Allocations are counted, so that the same program gives the same figures on any machine
// and under any load. Times do not, and nobody is stopped by them.
package main
