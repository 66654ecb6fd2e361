// Package soak injects faults into clusters for a given time, and sums up the results:
//
//	make soak DURATION=60m SEED=1
//
// It runs episodes. An episode's seed determines its cluster (three or five nodes, each in its own network
// namespace or on loopback, behind proxies, with a log that is truncated or a clock that is moved), its load,
// and a handful of nemeses of package process, which act one after the other. Then all faults are healed. All
// waiting requests must be answered in time, nodes must shrink to their earlier size and agree with each
// other, and what the clients saw must agree with the committed logs (package judge). Every few episodes, the
// tests of clusters in virtual time run with a new seed.
//
// The episodes' seeds are consecutive. A failing episode prints its seed and keeps its files; make soak
// SEED=<its seed> DURATION=0s runs only that episode again, with the same cluster, faults and load. The order
// of events within them may differ. An interrupt ends the run after the current episode.
//
// The last lines are a summary. The run fails if it did too little to prove anything: operations, grants,
// contention, expiries, leader changes, and for each nemesis how often it took effect.
package soak
