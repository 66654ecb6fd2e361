// Package golden compares what tests show with files in testdata.
package golden
