package workload

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// actor is one goroutine of a load, with its own random generator.
type actor struct {
	*Run
	name   string
	client string // whose process it belongs to
	number int    // within its part
	rand   *rand.Rand
}

// start runs an actor in the process of the client with the same name.
func (r *Run) start(name string, act func(*actor)) { r.startIn(name, name, act) }

func (r *Run) startIn(client, name string, act func(*actor)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.actors++
	a := &actor{Run: r, name: name, client: client, number: r.busy[name], rand: rand.New(rand.NewPCG(r.env.Seed, r.actors))}
	r.busy[name]++
	r.acting.Go(func() {
		defer r.left(name)
		act(a)
	})
}

func (r *Run) left(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy[name]--; r.busy[name] == 0 {
		delete(r.busy, name)
	}
}

func (a *actor) going() bool { return a.stop.Err() == nil }

// must records an unexpected error as a fault.
func (a *actor) must(what string, err error) {
	if err != nil {
		a.fault("%s: %s: %v", a.name, what, err)
	}
}

func (a *actor) between(least, most time.Duration) time.Duration {
	return least + time.Duration(a.rand.Int64N(int64(max(1, most-least))))
}

// some returns a random duration of at most parts quarters of the pace.
func (a *actor) some(parts time.Duration) time.Duration {
	return a.between(time.Millisecond, a.opts.Pace*parts/4)
}

// rest waits until the next round.
func (a *actor) rest() { a.pause(a.between(a.opts.Pace/4, 2*a.opts.Pace), a.stop.Done()) }

// pause waits for d, or until the channel is closed.
func (a *actor) pause(d time.Duration, until <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-until:
	}
}

// lock returns the name of one of a part's locks.
func lock(part string, i int) string { return fmt.Sprint(Prefix, part, "/", i) }
