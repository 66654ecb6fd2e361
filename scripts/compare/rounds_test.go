package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/scripts/compare/report"
	"github.com/quorumlock/quorumlock/scripts/compare/system"
	"github.com/quorumlock/quorumlock/scripts/compare/workload"
)

// inMemory is a system without servers, in virtual time.
type inMemory struct {
	name   string
	starts atomic.Int64
	fails  func(start int64) error
}

func (s *inMemory) Name() string                            { return s.name }
func (s *inMemory) Title() string                           { return system.Title(s.name) }
func (s *inMemory) Needs() []system.Need                    { return nil }
func (s *inMemory) Version(context.Context) (string, error) { return "1.0 of " + s.name, nil }

func (s *inMemory) Start(_ context.Context, dir string) (*system.Cluster, error) {
	if err := s.fails(s.starts.Add(1)); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "data"), nil, 0o600); err != nil {
		return nil, err
	}
	return &system.Cluster{Dial: func() (system.Client, error) { return client{}, nil }}, nil
}

type client struct{}

func (client) Open(context.Context, time.Duration) (system.Session, error) { return session{}, nil }
func (client) Close() error                                                { return nil }

type session struct{}

func (session) Lock(context.Context, string) (system.Hold, error) {
	time.Sleep(5 * time.Millisecond)
	return hold{}, nil
}

func (session) Close(context.Context) error { return nil }

type hold struct{}

func (hold) Unlock(context.Context) error { return nil }

func never(int64) error { return nil }

// small is a comparison of systems in memory.
func small(t *testing.T, systems ...system.System) *comparison {
	t.Helper()
	dir := t.TempDir()
	o := &options{rounds: 2, window: 20 * time.Millisecond, out: filepath.Join(dir, "out"), dir: filepath.Join(dir, "data"), systems: systems}
	for _, s := range workload.Stages(workload.Small) {
		if s.Name == "shared" {
			o.stages = append(o.stages, s)
		}
	}
	if err := os.Mkdir(o.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := newComparison(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// left checks that nothing is left of the servers' data.
func left(t *testing.T, c *comparison) {
	t.Helper()
	if files, err := os.ReadDir(c.dir); err != nil || len(files) > 0 {
		t.Errorf("%v is left, %v", files, err)
	}
}

func TestRoundsAreCollected(t *testing.T) { synctest.Test(t, roundsAreCollected) }

func roundsAreCollected(t *testing.T) {
	errPort := errors.New("somebody took the port")
	second := func(start int64) error {
		if start == 2 {
			return errPort
		}
		return nil
	}
	c := small(t, &inMemory{name: system.Quorumlock, fails: never}, &inMemory{name: system.Etcd, fails: second})
	if err := c.run(t.Context()); err == nil || !strings.Contains(err.Error(), "failures: 1") {
		t.Errorf("the comparison ended with %v", err)
	}
	left(t, c)
	text, err := os.ReadFile(filepath.Join(c.out, "compare.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r report.Results
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	ours, theirs := r.Figures[system.Quorumlock]["shared/perSecond"], r.Figures[system.Etcd]["shared/perSecond"]
	if r.Rounds != 2 || len(ours) != 2 || len(theirs) != 1 || len(r.Rows) != 1 || len(r.FsyncMs) != 2 {
		t.Errorf("got %+v", r)
	}
	if len(r.Failures) != 1 || !strings.Contains(r.Failures[0], errPort.Error()) || r.Versions[system.Etcd] != "1.0 of etcd" {
		t.Errorf("failures are %q, versions %v", r.Failures, r.Versions)
	}
	for _, name := range []string{"compare.md", "compare.svg"} {
		if _, err := os.Stat(filepath.Join(c.out, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestInterruptKeepsCompleteRounds(t *testing.T) { synctest.Test(t, interruptKeepsRounds) }

func interruptKeepsRounds(t *testing.T) {
	for _, rounds := range []int64{0, 1} {
		ctx, cancel := context.WithCancel(t.Context())
		s := &inMemory{name: system.Quorumlock}
		s.fails = func(start int64) error {
			if start > rounds {
				cancel()
			}
			return nil
		}
		c := small(t, s)
		if err := c.run(ctx); err == nil || !strings.Contains(err.Error(), "interrupted") {
			t.Errorf("the comparison ended with %v", err)
		}
		left(t, c)
		_, err := os.Stat(filepath.Join(c.out, "compare.json"))
		if got := c.results.Figures[system.Quorumlock]["shared/perSecond"]; len(got) != int(rounds) || os.IsNotExist(err) != (rounds == 0) {
			t.Errorf("interrupted in round %d: %v, %v", rounds+1, got, err)
		}
	}
}
