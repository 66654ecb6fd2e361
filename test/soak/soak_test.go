package soak_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"testing"
	"time"
)

var (
	duration = flag.Duration("duration", -1, "how long to soak; 0 is one episode, less than that none")
	first    = flag.Uint64("seed", 1, "seed of the first episode")
	keep     = flag.String("keep", "", "where failed episodes leave their files; empty is a new directory")
)

// virtualEvery is the number of episodes with processes per run in virtual time.
const virtualEvery = 4

func TestSoak(t *testing.T) {
	if *duration < 0 {
		t.Skip("it runs for as long as -duration says: make soak")
	}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b := build(t)
	sum := newSum()
	started := time.Now()
	for seed := *first; seed == *first || time.Since(started) < *duration; seed++ {
		if interrupted.Err() != nil {
			t.Error("interrupted")
			break
		}
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { b.episode(t, seed, sum) }) {
			fmt.Printf("FAILED: again with make soak SEED=%d DURATION=0s; its files are in %s\n", seed, b.dir(seed))
		}
		if seed%virtualEvery == 0 {
			t.Run(fmt.Sprint("virtual", seed), func(t *testing.T) { b.runVirtual(t, seed, sum) })
		}
	}
	sum.report(t, time.Since(started))
}
