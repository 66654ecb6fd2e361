package virtual_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// leastClusters is the minimum number of clusters that the tests of this package start in total, without the
// race detector.
const leastClusters = 140

// TestMain counts the clusters of a full run.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	n := clusters.Load()
	fmt.Printf("%d clusters in virtual time\n", n)
	all := !raced && *onlySeed == 0 && flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == ""
	if code == 0 && all && n < leastClusters {
		fmt.Printf("at least %d were meant to be\n", leastClusters)
		code = 1
	}
	os.Exit(code)
}
