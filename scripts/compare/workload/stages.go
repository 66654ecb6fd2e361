package workload

import (
	"context"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/scripts/compare/system"
)

// Stage is a sequence of workloads for servers that are started for it.
type Stage struct {
	// Name is its name on the command line.
	Name string
	// Systems are the names of the systems that take part.
	Systems []string
	// Workloads run one after the other.
	Workloads []Workload
}

// Workload is one kind of load.
type Workload struct {
	// Name is the prefix of its figures' names.
	Name string
	run  func(context.Context, *Bed) error
}

// Sizes are the sizes of the large workloads.
type Sizes struct {
	Idle        int // sessions
	Held        int // locks
	ManyWaiters int // waiters, only on Quorumlock
	Full        int // held locks, only on Quorumlock
}

// Sizes of a real comparison, and of one that only shows that everything works.
var (
	Real  = Sizes{Idle: 10_000, Held: 100_000, ManyWaiters: 10_000, Full: 1_000_000}
	Small = Sizes{Idle: 1_000, Held: 10_000, ManyWaiters: 2_000, Full: 20_000}
)

// few is the number of held locks with which many are compared.
const few = 1_000

// Stages returns all stages. Those that measure speed begin with unmeasured load, for servers with a
// just-in-time compiler. Nothing may run before workloads that measure memory.
func Stages(n Sizes) []Stage {
	own := system.Quorumlock
	replicated := []string{own, system.Etcd, system.ZooKeeper}
	everybody := append(replicated, system.Redis, system.RedisAlways, system.Redlock)
	redisClients := []string{system.QuorumlockRedis, system.QuorumlockRedisFollower, system.RedisAlways, system.RedlockAlways}
	return []Stage{
		{"pairs", everybody, []Workload{warm("pairs/warm"), pairs("pairs/1", 1), pairs("pairs/16", 16), pairs("pairs/128", 128), pairs("pairs/1024", 1024)}},
		{"shared", []string{own, system.Etcd}, []Workload{warm("shared/warm"), sharing("shared", 1024, 16)}},
		{"hot", replicated, []Workload{warm("hot/warm"), hot("hot/16", 16), hot("hot/128", 128), hot("hot/1000", 1000)}},
		{"long-queue", []string{own}, []Workload{hot("long-queue", n.ManyWaiters)}},
		{"idle", replicated, []Workload{idle("idle", n.Idle)}},
		{"held", replicated, []Workload{held("held", n.Held)}},
		{"tls", []string{own, system.QuorumlockTLS}, []Workload{pairs("tls", 128)}},
		{"cached", []string{own, system.QuorumlockCached}, []Workload{pairs("cached/1", 1), pairs("cached/128", 128), hot("cached/hot", 16)}},
		{"redis-port", redisClients, []Workload{pairs("redis-port", 128)}},
		{"full", []string{own}, []Workload{full("full/few", few), full("full/many", n.Full)}},
	}
}

// Figures are the measurements by name, which consists of the workload's name, a slash, and what was
// measured.
type Figures map[string]float64

// Bed is the environment in which workloads run.
type Bed struct {
	*system.Cluster
	// Window is the duration of a measurement, after WarmUp.
	Window, WarmUp time.Duration
	// Tell is called when a workload begins.
	Tell func(name string)

	figures Figures
	name    string          // of the workload
	stage   context.Context // ends with the stage, for what outlives a workload
	parked  []*sessionSet   // sessions that stay open until then
}

// limit bounds one workload: what takes longer has failed.
const limit = 20 * time.Minute

// Run runs the workloads on a cluster one after the other and returns the measurements, also if one of them
// failed.
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

// set stores a figure of the workload.
func (b *Bed) set(what string, value float64) { b.figures[b.name+"/"+what] = value }

// lock returns the name of one of the workload's locks.
func (b *Bed) lock(number int) string { return fmt.Sprintf("%s/%d", b.name, number) }
