// Package samples measures a node for its operators: every five seconds it takes a sample of the node's totals, of the
// grants and expirations since the sample before, and of the latencies of its disk and of its commits. It keeps the
// samples of the last ten minutes.
//
// What is measured on the path of a request only increments counters. Latencies are counted in a [Histogram] of fixed
// size, from which a sample takes their median.
package samples
