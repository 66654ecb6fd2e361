// Package soak hurts clusters for as long as it is told to, and adds up what happened:
//
//	make soak DURATION=60m SEED=1
//
// It runs episodes. Each has a seed, from which its cluster is drawn (three nodes or five,
// apart or on loopback, behind proxies, with a log that is cut or a clock that is moved),
// its load, and a handful of nemeses of package process, one after the other. Then
// everything is healed: all who wait must be answered in time, nodes must be as small as
// before and agree with each other, and what the clients saw must be what the committed
// logs say (package judge). Every few episodes, clusters in virtual time have their turn.
//
// Seeds follow each other from the first. A failing episode prints its own and keeps its
// files; make soak SEED=<its seed> DURATION=0s runs that one alone, the same cluster with
// the same faults and the same load. The order of events within them is up to the machine.
// An interrupt ends the run after the episode that is under way.
//
// The last lines say what the run has amounted to. It fails if that is too little to prove
// anything: operations, grants, contention, expiries, leaders, and for each nemesis how
// often it took effect.
package soak
