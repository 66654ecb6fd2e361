// Package consistency verifies at run time, outside the log, that all nodes are in the same state. All nodes apply
// the same log, so any difference is a bug or damage.
//
//   - From time to time the leader marks an entry as a hash point. Each node that applies it forks its state in
//     O(1) and hashes the fork in the background.
//   - The nodes exchange the hashes.
//   - A node that finds most voters in a different state than its own has a bug or damage that the others do not
//     have. It must stop, and does not start again.
//   - If voters differ and there is no such majority, it is unknown which state is right. The leader then suspends
//     granting until a majority agrees on a later state.
//
// checker.go decides when points are due, and hashes them. agreement.go compares the hashes.
package consistency
