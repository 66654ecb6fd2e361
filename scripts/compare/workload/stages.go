package workload

import (
	"context"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/scripts/compare/system"
)

// Stage is what servers that were started for it are asked to do.
type Stage struct {
	// Name is its word on the command line.
	Name string
	// Systems take part, by their names.
	Systems []string
	// Workloads come one after the other.
	Workloads []Workload
}

// Workload is one thing that a system is asked to do.
type Workload struct {
	// Name begins the names of its figures.
	Name string
	run  func(context.Context, *Bed) error
}

// Sizes are how many there are of what there are many of.
type Sizes struct {
	Idle  int // sessions
	Held  int // locks
	Crowd int // waiters, of the one system that is asked that
	Full  int // held locks, of the same
}

// Sizes of a real comparison, and of one that shows only that everything works.
var (
	Real  = Sizes{Idle: 10_000, Held: 100_000, Crowd: 10_000, Full: 1_000_000}
	Small = Sizes{Idle: 1_000, Held: 10_000, Crowd: 2_000, Full: 20_000}
)

// few is how many locks are held where many are compared with few.
const few = 1_000

// Stages are all there are. Those in which speed counts begin with load that does not, for
// servers that compile themselves while they run; where memory counts nothing may come before.
func Stages(n Sizes) []Stage {
	own := system.Quorumlock
	replicated := []string{own, system.Etcd, system.ZooKeeper}
	everybody := append(replicated, system.Redis, system.RedisAlways, system.Redlock)
	return []Stage{
		{"pairs", everybody, []Workload{warm("pairs/warm"), pairs("pairs/1", 1), pairs("pairs/16", 16), pairs("pairs/128", 128), pairs("pairs/1024", 1024)}},
		{"shared", []string{own, system.Etcd}, []Workload{warm("shared/warm"), sharing("shared", 1024, 16)}},
		{"hot", replicated, []Workload{warm("hot/warm"), hot("hot/16", 16), hot("hot/128", 128), hot("hot/1000", 1000)}},
		{"crowd", []string{own}, []Workload{hot("crowd", n.Crowd)}},
		{"idle", replicated, []Workload{idle("idle", n.Idle)}},
		{"held", replicated, []Workload{held("held", n.Held)}},
		{"tls", []string{own, system.QuorumlockTLS}, []Workload{pairs("tls", 128)}},
		{"full", []string{own}, []Workload{full("full/few", few), full("full/many", n.Full)}},
	}
}

// Figures are what was measured, by name: that of the workload, a slash, and what it is.
type Figures map[string]float64

// Bed is where workloads run.
type Bed struct {
	*system.Cluster
	// Window is how long is measured, after WarmUp.
	Window, WarmUp time.Duration
	// Tell is told which workload begins.
	Tell func(name string)

	figures Figures
	name    string          // of the workload
	stage   context.Context // ends with the stage, for what outlives a workload
	parked  []*crowd        // who stay until then
}

// limit bounds one workload: what takes longer has failed.
const limit = 20 * time.Minute

// Run carries out one workload after the other on a cluster and returns what was measured,
// also if one of them failed.
func (s *Stage) Run(ctx context.Context, b *Bed) (Figures, error) {
	ctx, release := b.While(ctx)
	defer release()
	b.figures, b.stage = Figures{}, ctx
	defer func() {
		for _, c := range b.parked {
			c.close()
		}
	}()
	for _, w := range s.Workloads {
		b.name = w.Name
		b.Tell(w.Name)
		bounded, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %v", limit))
		err := w.run(bounded, b)
		cancel()
		if err != nil {
			return b.figures, fmt.Errorf("%s: %w", w.Name, err)
		}
	}
	return b.figures, nil
}

// set notes a figure of the workload.
func (b *Bed) set(what string, value float64) { b.figures[b.name+"/"+what] = value }

// lock is the name of one of the workload's locks.
func (b *Bed) lock(number int) string { return fmt.Sprintf("%s/%d", b.name, number) }
