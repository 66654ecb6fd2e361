package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// lookEvery is how often the allocation rate is measured.
	lookEvery = time.Second
	// quietLooks is how many consecutive measurements must find a lower rate before garbage is given less
	// room.
	quietLooks = 4
	// collectEvery is the minimum interval between collections that come earlier than with Go's default.
	collectEvery = 30 * time.Second

	// A load has ended when the allocation rate was slowFactor times as high before, and has been this low
	// in slowLooks consecutive measurements.
	slowFactor, slowLooks = 4, 2
	// little is too little memory to justify a collection that returns it.
	little = 64 << 20
	// After memory was returned, it is not returned again for returnRest times as long as returning it
	// took.
	returnRest = 100
)

// limitMemory makes the collector work harder before the process exceeds nine tenths of the node's memory;
// the rest is for memory that Go does not count. GOMEMLIMIT in the environment takes precedence.
func limitMemory(bytes int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(bytes / 10 * 9)
	}
}

// limitHeap keeps the heap close to its live size while little is allocated, until stop is called. By
// default Go lets garbage take as much memory as live data, and returns memory only slowly after a load. A
// node that holds many locks and has little to do should not need that memory. Under load the default
// applies: the cost of a collection is proportional to the live heap, and collections would be too
// frequent. When a load has ended, or buffers for clients were freed, their memory is returned immediately: buffers
// returns the bytes that these take. If GOGC is set, it is left alone.
func limitHeap(buffers func() int64) (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	done := make(chan struct{})
	var pacing sync.WaitGroup
	pacing.Go(func() {
		defer debug.SetGCPercent(debug.SetGCPercent(100))
		ticks := time.NewTicker(lookEvery)
		defer ticks.Stop()
		pace := newPace(buffers)
		for {
			select {
			case <-ticks.C:
				pace.look()
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		pacing.Wait()
	}
}

// memory holds, in bytes, what the process has allocated in total, what was live at the last collection,
// what the process occupies of the machine's memory, and what buffers for clients take.
type memory struct{ allocated, live, footprint, buffers uint64 }

// excess returns what the process occupies beyond the live heap and half as much for garbage. Reads that come every few
// seconds use that room again and again: returning it after each would cost more than the reads.
func (m memory) excess() uint64 { return m.footprint - min(m.footprint, m.live/2*3) }

// pace adapts the collector to the allocation rate.
type pace struct {
	read       func() memory
	setPercent func(percent int)
	giveBack   func()
	// allocated is the total number of bytes allocated as of the last measurement.
	allocated uint64
	percent   int
	// quiet counts consecutive measurements with a lower rate.
	quiet int
	// fastest is the highest number of bytes allocated between two measurements since memory was returned.
	fastest uint64
	// slow counts consecutive measurements with a far lower rate.
	slow int
	// buffers is what buffers for clients took at most since memory was returned.
	buffers uint64
	// Until rest, memory is not returned after a load. The exception is again: if it is not 0, memory is
	// returned once more after that many measurements, because much was returned the last time.
	rest  time.Time
	again int
}

func newPace(buffers func() int64) *pace {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}
	p := &pace{
		read: func() memory {
			metrics.Read(samples)
			value := func(i int) uint64 { return samples[i].Value.Uint64() }
			return memory{value(0), value(1), value(2) - value(3), uint64(buffers())}
		},
		setPercent: func(percent int) { debug.SetGCPercent(percent) },
		giveBack: func() {
			runtime.GC() // this leaves the contents of each sync.Pool in place
			debug.FreeOSMemory()
		},
		percent: 100,
	}
	p.allocated = p.read().allocated
	return p
}

// look measures the allocation rate. It gives garbage more room immediately if needed, and less room after
// a while; it then also returns the memory that was needed until then.
func (p *pace) look() {
	u := p.read()
	allocated := u.allocated - p.allocated
	p.allocated = u.allocated
	percent := garbagePercent(allocated, u.live)
	if percent >= p.percent {
		p.quiet = 0
	} else {
		p.quiet++
	}
	less := p.quiet == quietLooks
	if percent > p.percent || less {
		p.setPercent(percent)
		p.percent, p.quiet = percent, 0
	}
	now, excess := time.Now(), u.excess()
	less = less && excess > little && now.After(p.rest)
	if freed := p.freed(u.buffers, now); less || freed || p.ended(allocated, excess, now) {
		p.giveBack()
		p.returned(u, allocated, now)
	}
}

// returned records that memory was returned, of which the process had that much when it started.
func (p *pace) returned(had memory, allocated uint64, started time.Time) {
	p.fastest, p.slow, p.again, p.buffers = allocated, 0, 0, had.buffers
	p.rest = started.Add(returnRest * time.Since(started))
	if p.read().footprint < had.footprint/4*3 {
		p.again = quietLooks // memory that was still in use may be free by then
	}
}

// ended reports whether a load has ended that left memory worth returning.
func (p *pace) ended(allocated, excess uint64, now time.Time) bool {
	if p.again > 0 {
		if p.again--; p.again == 0 {
			return excess > little
		}
	}
	p.fastest = max(p.fastest, allocated)
	if allocated > p.fastest/slowFactor {
		p.slow = 0
	} else {
		p.slow++
	}
	return p.slow >= slowLooks && excess > little && now.After(p.rest)
}

// freed reports whether buffers were freed that are worth returning. Clients that fill them allocate little afterwards, so
// the rate does not show when they go.
func (p *pace) freed(buffers uint64, now time.Time) bool {
	p.buffers = max(p.buffers, buffers)
	return p.buffers-buffers > little && now.After(p.rest)
}

// garbagePercent returns how much garbage to allow, in percent of the live heap, if allocated bytes are
// allocated between two measurements.
func garbagePercent(allocated, live uint64) int {
	between := allocated * uint64(collectEvery/lookEvery)
	for _, percent := range []uint64{10, 25, 50} {
		if between <= live/100*percent {
			return int(percent)
		}
	}
	return 100
}
