package samples

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// Interval is the time between two samples.
	Interval = 5 * time.Second
	// kept is the number of samples that are kept: those of ten minutes.
	kept = int(10 * time.Minute / Interval)
	// recent is the number of intervals that the medians of the last minute include.
	recent = int(time.Minute / Interval)
)

// Sampler takes the samples of a node. All methods are safe for concurrent use.
type Sampler struct {
	// DiskSyncs are the writes to the node's log, each with its sync. Commits are the entries that this node has
	// proposed, until they were applied.
	DiskSyncs, Commits Histogram

	totals              func() fsm.Totals
	grants, expirations atomic.Uint64

	mu      sync.Mutex // guards the fields below
	samples []*wire.Sample
	syncs   minute
	commits minute
}

// minute are the durations of the last intervals, the next of which replaces the one at next.
type minute struct {
	intervals [recent]counts
	next      int
}

// New returns a Sampler of a node with these totals.
func New(totals func() fsm.Totals) *Sampler { return &Sampler{totals: totals} }

// Run takes samples until ctx ends.
func (s *Sampler) Run(ctx context.Context) {
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			s.sample(now)
		case <-ctx.Done():
			return
		}
	}
}

// Applied counts the events of an entry that the node has applied.
func (s *Sampler) Applied(events []*wire.Event) {
	var grants, expirations uint64
	for _, e := range events {
		switch e.Type {
		case wire.Event_GRANTED:
			grants++
		case wire.Event_SESSION_EXPIRED, wire.Event_EXPIRED:
			expirations++
		}
	}
	if grants > 0 {
		s.grants.Add(grants)
	}
	if expirations > 0 {
		s.expirations.Add(expirations)
	}
}

// sample takes a sample. The totals are read first, because the state is locked for that.
func (s *Sampler) sample(now time.Time) {
	totals := s.totals()
	s.mu.Lock()
	defer s.mu.Unlock()
	sample := &wire.Sample{
		UnixMs: now.UnixMilli(), Locks: totals.Locks, Sessions: totals.Sessions, Holds: totals.Holds, Waiters: totals.Waiters,
		Grants: s.grants.Swap(0), Expirations: s.expirations.Swap(0),
	}
	sample.DiskSyncUs, sample.DiskSyncMaxUs = s.syncs.take(&s.DiskSyncs)
	sample.CommitUs, _ = s.commits.take(&s.Commits)
	if len(s.samples) == kept {
		s.samples = slices.Delete(s.samples, 0, 1)
	}
	s.samples = append(s.samples, sample)
}

// List returns the samples of the last ten minutes, the oldest first. They must not be changed.
func (s *Sampler) List() []*wire.Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.samples)
}

// DiskSyncUs returns the median of the disk's syncs in the last minute, in microseconds; 0 if there was none.
func (s *Sampler) DiskSyncUs() uint32 { return s.lastMinute(&s.syncs, &s.DiskSyncs) }

// CommitUs returns the median of the commits in the last minute, in microseconds; 0 if there was none.
func (s *Sampler) CommitUs() uint32 { return s.lastMinute(&s.commits, &s.Commits) }

func (s *Sampler) lastMinute(m *minute, now *Histogram) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.median(now)
}

// take ends an interval. It returns its median and its longest duration.
func (m *minute) take(h *Histogram) (median, longest uint32) {
	interval := &m.intervals[m.next]
	m.next = (m.next + 1) % recent
	*interval, longest = h.reset()
	return interval.median(), longest
}

// median returns the median of the last intervals and of the present one.
func (m *minute) median(now *Histogram) uint32 {
	var all counts
	now.add(&all)
	for i := range m.intervals {
		for j, n := range m.intervals[i] {
			all[j] += n
		}
	}
	return all.median()
}
