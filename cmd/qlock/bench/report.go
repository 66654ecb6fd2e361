package bench

import (
	"strconv"
	"time"
)

// Report is the result of a measurement. Its JSON names must not change; unknown values are null.
type Report struct {
	Workload    Workload `json:"workload"`
	Loop        string   `json:"loop"` // closed, open, or none if sessions only stay open
	Sessions    int      `json:"sessions"`
	Connections int      `json:"connections"`
	Locks       int      `json:"locks"`
	// WritePercent applies to Readers. Rate and Arrivals (even or random) apply to an open loop.
	WritePercent int     `json:"writePercent"`
	HoldMs       float64 `json:"holdMs"` // of each lock
	// CachedIdleMs is how long a session keeps an unlocked lock; 0 means that locks are not cached.
	CachedIdleMs    float64 `json:"cachedIdleMs"`
	Rate            float64 `json:"rate"`
	Arrivals        string  `json:"arrivals"`
	Seed            string  `json:"seed"`
	Prefix          string  `json:"prefix"`
	WarmUpSeconds   float64 `json:"warmUpSeconds"`
	DurationSeconds float64 `json:"durationSeconds"` // as measured
	Interrupted     bool    `json:"interrupted"`

	// Unit is what Completed counts and PerSecond is the rate of: pairs and hand-overs within the window,
	// or sessions and locks while they were opened and acquired.
	Unit      string  `json:"unit"`
	Completed int64   `json:"completed"`
	PerSecond float64 `json:"perSecond"`
	// Unfinished counts operations due in the window that were unanswered when Grace had passed.
	Unfinished       int64            `json:"unfinished"`
	Errors           map[string]int64 `json:"errors"` // by status
	SessionsLost     int64            `json:"sessionsLost"`
	SessionsUnclosed int              `json:"sessionsUnclosed"`

	Latency map[string]Percentiles `json:"latency"`
	Gap     *Gap                   `json:"gap"`

	LeaderBefore     Leader  `json:"leaderBefore"`
	LeaderAfter      Leader  `json:"leaderAfter"`
	Servers          Servers `json:"servers"`
	ClientCPUSeconds float64 `json:"clientCpuSeconds"`
}

// Gap is the longest time without an answer to any session, where it began, and the longest time without an
// answer to one session.
type Gap struct {
	LongestMs        float64 `json:"longestMs"`
	AtSeconds        float64 `json:"atSeconds"` // from the start of the window
	LongestSessionMs float64 `json:"longestSessionMs"`
}

// report builds the report.
func (r *run) report() *Report {
	all := r.recorder.total()
	all.latencies[opening].merge(&r.openings)
	p := r.plan
	out := &Report{
		Workload: p.Workload, Loop: "closed", Sessions: p.Sessions, Connections: p.Connections, Locks: p.locks(),
		HoldMs: inMs(p.Hold), CachedIdleMs: inMs(p.CachedIdle), Seed: strconv.FormatUint(p.Seed, 10), Prefix: p.Prefix,
		WarmUpSeconds: seconds(p.WarmUp), DurationSeconds: seconds(r.until.Sub(r.from)), Interrupted: r.interrupted,
		Unit: p.unit(), Completed: r.recorder.finished.Load(), Unfinished: all.unfinished,
		Errors: all.errors, SessionsLost: all.lost, SessionsUnclosed: r.unclosed,
		Latency:      map[string]Percentiles{},
		LeaderBefore: r.before.Leader, LeaderAfter: r.last.Leader,
		ClientCPUSeconds: seconds(r.cpuEnd - r.cpuAt),
	}
	r.describe(out)
	for i := range all.latencies {
		if all.latencies[i].count() > 0 {
			out.Latency[seriesNames[i]] = all.latencies[i].percentiles()
		}
	}
	if r.took > 0 {
		out.PerSecond = rounded(float64(out.Completed)/r.took.Seconds(), 3)
	}
	out.Servers = r.servers(out)
	return out
}

// describe sets the fields that only some workloads have.
func (r *run) describe(out *Report) {
	switch {
	case r.plan.idle():
		out.Loop = "none"
		if r.plan.Workload == Idle {
			out.Completed = r.openings.count()
		}
		return
	case r.plan.Rate > 0:
		out.Loop, out.Rate, out.Arrivals = "open", r.plan.Rate, "even"
		if r.plan.Random {
			out.Arrivals = "random"
		}
	}
	if r.plan.Workload == Readers {
		out.WritePercent = r.plan.Writes
	}
	g := r.recorder.gap
	out.Gap = &Gap{LongestMs: inMs(g.longest), AtSeconds: seconds(g.since.Sub(r.from)), LongestSessionMs: inMs(r.sessionGap)}
}

// seconds returns d in seconds, rounded to the microsecond.
func seconds(d time.Duration) float64 { return rounded(d.Seconds(), 6) }
