// Program bench is the gate of "make bench": it reads the table in which benchstat compares two commits'
// benchmarks, as CSV, and fails if one of them allocates more than before.
//
// Allocations are counted, so the same program gives the same figures on any machine and under any load.
// Times do not, and never cause a failure.
package main
