package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/scripts/compare/system"
)

func parsed(t *testing.T, args ...string) *options {
	t.Helper()
	o, err := parse(args, io.Discard)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return o
}

func names(systems []system.System) []string {
	var all []string
	for _, s := range systems {
		all = append(all, s.Name())
	}
	return all
}

func TestOptions(t *testing.T) {
	o := parsed(t)
	if o.rounds != 5 || o.window != 5*time.Second || len(o.systems) != len(system.Names()) || len(o.stages) != len(stageNames()) {
		t.Errorf("without any: %+v", o)
	}
	o = parsed(t, "--systems", "etcd, zookeeper", "--workloads", "hot,pairs", "--rounds", "2")
	if got := names(o.systems); !slices.Equal(got, append(slices.Clone(system.Own), "etcd", "zookeeper")) {
		t.Errorf("systems: %v", got)
	}
	if len(o.stages) != 2 || o.stages[0].Name != "pairs" || o.rounds != 2 {
		t.Errorf("stages: %+v", o.stages)
	}
}

func TestSmokeIsShort(t *testing.T) {
	o := parsed(t, "--smoke", "--window", "7s")
	if o.rounds != 1 || o.window != 7*time.Second || o.warmUp != smokeWarmUp {
		t.Errorf("%+v", o)
	}
}

func TestOptionsAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"--rounds", "0"}, {"--rounds", "101"}, {"--rounds", "x"}, {"--window", "0s"}, {"--window", "1h"}, {"--warm-up", "-1s"},
		{"--systems", "consul"}, {"--workloads", "cold"}, {"--workloads", ""}, {"more"}, {"--no-such-flag"},
	} {
		if _, err := parse(args, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestSystemsTakeTurnsToBeFirst(t *testing.T) {
	c := &comparison{options: parsed(t, "--systems", "etcd,zookeeper", "--workloads", "hot,long-queue")}
	hot, sessionSet := c.stages[0], c.stages[1]
	for round, want := range []string{"quorumlock", "etcd", "zookeeper", "quorumlock"} {
		got := names(c.taking(hot, round))
		if got[0] != want || len(got) != 3 {
			t.Errorf("round %d: %v", round, got)
		}
		if got := names(c.taking(sessionSet, round)); !slices.Equal(got, []string{"quorumlock"}) {
			t.Errorf("round %d, long queue: %v", round, got)
		}
	}
	if got := c.turns(); got != 3*len(hot.Workloads)+len(sessionSet.Workloads) {
		t.Errorf("%d turns", got)
	}
}

func TestMissingProgramsAreNamed(t *testing.T) {
	o := parsed(t, "--bin", t.TempDir(), "--systems", "")
	if err := o.ready(); err == nil || !strings.Contains(err.Error(), "qlockd") || !strings.Contains(err.Error(), "make compare") {
		t.Errorf("got %v", err)
	}
}

func TestProgressLine(t *testing.T) {
	p := &progress{all: 40}
	for _, c := range []struct {
		done int
		want string
	}{{0, "2m0s, 0%: idle"}, {10, "2m0s, 25%, about 7 min left: idle"}, {40, "2m0s, 100%, about 1 min left: idle"}} {
		p.done, p.what = c.done, "idle"
		if got := p.line(2 * time.Minute); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestCommandReproduces(t *testing.T) {
	if got := command(nil); got != "make compare" {
		t.Error(got)
	}
	if got := command([]string{"--rounds", "1"}); got != "make compare COMPARE_FLAGS='--rounds 1'" {
		t.Error(got)
	}
}
