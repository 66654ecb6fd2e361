package examine

import (
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestExamination examines this machine, and verifies that nothing is left in the directory.
func TestExamination(t *testing.T) {
	dir := t.TempDir()
	e := New(Config{DataDir: dir, Configured: &wire.Examination{HeartbeatTimeoutMs: 500, OpenFilesNeeded: 7}, Uncertified: func() []string { return []string{"h:1"} }})
	found := e.Examine(t.Context())
	if found.Syncs == 0 || found.SyncMedianUs == 0 || found.SyncMaxUs < found.SyncMedianUs || found.SyncError != "" {
		t.Errorf("syncs: %v", found)
	}
	if found.DiskBytes == 0 || found.DiskFreeBytes > found.DiskBytes || found.OpenFilesLimit == 0 || found.MachineMemoryBytes == 0 {
		t.Errorf("machine: %v", found)
	}
	if found.HeartbeatTimeoutMs != 500 || found.OpenFilesNeeded != 7 || !slices.Equal(found.UncertifiedAddrs, []string{"h:1"}) {
		t.Errorf("configuration: %v", found)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	none := New(Config{DataDir: dir + "/none"}).Examine(t.Context())
	if none.SyncError == "" || none.Syncs != 0 {
		t.Errorf("without a directory: %v", none)
	}
	if found := New(Config{}).Examine(t.Context()); found.SyncError != "" || found.DiskBytes != 0 {
		t.Errorf("in memory: %v", found)
	}
}

// TestLongestOutage verifies that the longest outage of the last hour is reported, and the present one if that is longer.
func TestLongestOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := New(Config{})
		expect := func(what string, want time.Duration) {
			t.Helper()
			if got := time.Duration(e.Examine(t.Context()).LongestOutageMs) * time.Millisecond; got != want {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		outage := func(d time.Duration) {
			e.LeaderLost(time.Now())
			time.Sleep(d)
			e.LeaderFound()
			time.Sleep(time.Minute)
		}
		e.LeaderLost(time.Time{}) // never heard of one
		e.LeaderFound()
		expect("none", 0)
		outage(2 * time.Second)
		outage(9 * time.Second)
		outage(time.Second)
		outage(3 * time.Second)
		expect("of four", 9*time.Second)
		time.Sleep(kept - 3*time.Minute)
		expect("the longest is forgotten", 3*time.Second)
		e.LeaderLost(time.Now().Add(-time.Second))
		time.Sleep(4 * time.Second)
		e.LeaderLost(time.Now())
		expect("the present one", 5*time.Second)
	})
}

// TestDiskIsMeasuredRarely verifies that many requests cause one measurement in ten seconds.
func TestDiskIsMeasuredRarely(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var measured atomic.Int32
		e := New(Config{DataDir: "d"})
		e.sync = func(string) ([]time.Duration, error) {
			measured.Add(1)
			return []time.Duration{3 * time.Millisecond, time.Millisecond, 2 * time.Millisecond}, nil
		}
		for range 5 {
			if found := e.Examine(t.Context()); found.Syncs != 3 || found.SyncMedianUs != 2_000 || found.SyncMaxUs != 3_000 {
				t.Errorf("%v", found)
			}
			time.Sleep(time.Second)
		}
		if n := measured.Load(); n != 1 {
			t.Errorf("measured %d times in five seconds", n)
		}
		time.Sleep(rest)
		e.Examine(t.Context())
		if n := measured.Load(); n != 2 {
			t.Errorf("measured %d times, want again after %v", n, rest)
		}
	})
}

// TestDiskThatHangs verifies that callers do not wait for a sync that never returns, and start no others.
func TestDiskThatHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var measured atomic.Int32
		release := make(chan struct{})
		e := New(Config{DataDir: "d"})
		e.sync = func(string) ([]time.Duration, error) {
			measured.Add(1)
			<-release
			return nil, errors.New("input/output error")
		}
		for range 20 {
			began := time.Now()
			if found := e.Examine(t.Context()); found.SyncError != "a sync has not returned within 2s" || time.Since(began) != timeout {
				t.Errorf("after %v: %v", time.Since(began), found)
			}
		}
		if n := measured.Load(); n != 1 {
			t.Errorf("%d measurements, want only the one that hangs", n)
		}
		close(release)
		if found := e.Examine(t.Context()); found.SyncError != "input/output error" {
			t.Errorf("once the disk has answered: %v", found)
		}
	})
}

// TestClockSteps verifies that steps in both directions count for an hour, and slow corrections do not.
func TestClockSteps(t *testing.T) {
	at := time.Now()
	c := newClock(at)
	for _, step := range []struct {
		after, wall time.Duration
		want        time.Duration
	}{
		{clockInterval, clockInterval + 5*time.Millisecond, 0},
		{clockInterval, clockInterval + 2*time.Second, 2 * time.Second},
		{clockInterval, clockInterval - 3*time.Second, 5 * time.Second},
		{kept - clockInterval, kept - clockInterval, 5 * time.Second},
		{clockInterval, clockInterval, 3 * time.Second},
		{clockInterval, clockInterval, 0},
	} {
		at = at.Add(step.after)
		c.observe(at, step.wall, step.after)
		var sum time.Duration
		for _, s := range c.steps {
			sum += s.by
		}
		if sum != step.want {
			t.Errorf("after %v by the wall clock: %v, want %v", step.wall, sum, step.want)
		}
	}
	if sum := c.look(time.Now()); sum > time.Hour {
		t.Errorf("%v", sum)
	}
}

func TestMemoryTotal(t *testing.T) {
	if got := memoryTotal([]byte("MemFree: 1 kB\nMemTotal:       16 kB\n")); got != 16<<10 {
		t.Errorf("%d", got)
	}
	if got := memoryTotal([]byte("MemTotal: 16\n")); got != 0 {
		t.Errorf("%d", got)
	}
}
