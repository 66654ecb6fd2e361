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
	// lookEvery is how often the pace of the allocations is looked at.
	lookEvery = time.Second
	// quietLooks in a row have to find a slower pace before there is less room for garbage.
	quietLooks = 4
	// collectEvery is how far apart collections are at least that are earlier than Go's
	// default would have them.
	collectEvery = 30 * time.Second

	// A load has ended when the pace of the allocations was slowFactor times as fast before, and
	// has been that slow in so many looks in a row.
	slowFactor, slowLooks = 4, 2
	// smallFootprint is not worth a collection after a load.
	smallFootprint = 64 << 20
	// returnRest is how many times as long as giving memory back took the next time is put off.
	returnRest = 10
)

// limitMemory has the collector work harder before the process takes more than nine tenths
// of the node's memory: the rest is for what Go does not count. GOMEMLIMIT in the environment
// takes precedence.
func limitMemory(bytes int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(bytes / 10 * 9)
	}
}

// spareMemory keeps the heap close to what lives as long as little is allocated, until
// the function that it returns is called. By default Go lets garbage take as much as what
// lives, and gives back what a load has left only little by little; a node that holds
// many locks and has little to do need not pay for either. Under load it is as by
// default: a collection costs time in proportion to what lives, and would come too often.
// When a load has ended, what it took is given back at once. Who has set GOGC is obeyed.
func spareMemory() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	done := make(chan struct{})
	var pacing sync.WaitGroup
	pacing.Go(func() {
		defer debug.SetGCPercent(debug.SetGCPercent(100))
		ticks := time.NewTicker(lookEvery)
		defer ticks.Stop()
		pace := newPace()
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

// memory is what the process has allocated ever, what of it lived at the last collection, and
// what the process has of the machine's memory, in bytes.
type memory struct{ allocated, live, footprint uint64 }

// pace is that of the garbage.
type pace struct {
	read       func() memory
	setPercent func(percent int)
	giveBack   func()
	// allocated are all bytes ever, when it was last looked.
	allocated uint64
	percent   int
	// quiet counts the looks in a row that found a slower pace.
	quiet int
	// fastest is how much was allocated between two looks at most since memory was given back.
	fastest uint64
	// slow counts the looks in a row that found far less.
	slow int
	// rest is until when no memory is given back, but for the time that comes in again looks, if
	// that is not 0, because much was given back the last time.
	rest  time.Time
	again int
}

func newPace() *pace {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}
	p := &pace{
		read: func() memory {
			metrics.Read(samples)
			value := func(i int) uint64 { return samples[i].Value.Uint64() }
			return memory{value(0), value(1), value(2) - value(3)}
		},
		setPercent: func(percent int) { debug.SetGCPercent(percent) },
		giveBack: func() {
			runtime.GC() // after which sync.Pool still has what was in it
			debug.FreeOSMemory()
		},
		percent: 100,
	}
	p.allocated = p.read().allocated
	return p
}

// look gives the garbage more room at once where it is needed, and less after a while,
// when it also gives back what was needed until then.
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
	now := time.Now()
	if less || p.ended(allocated, u.footprint, now) {
		p.giveBack()
		p.returned(u.footprint, allocated, now)
	}
}

// returned notes that memory was given back, from begun on, of a footprint of so much.
func (p *pace) returned(footprint, allocated uint64, begun time.Time) {
	p.fastest, p.slow, p.again = allocated, 0, 0
	p.rest = begun.Add(returnRest * time.Since(begun))
	if p.read().footprint < footprint/4*3 {
		p.again = quietLooks // what was in use still may be free by then
	}
}

// ended reports whether a load has ended that left memory worth giving back.
func (p *pace) ended(allocated, footprint uint64, now time.Time) bool {
	if p.again > 0 {
		if p.again--; p.again == 0 {
			return footprint > smallFootprint
		}
	}
	p.fastest = max(p.fastest, allocated)
	if allocated > p.fastest/slowFactor {
		p.slow = 0
	} else {
		p.slow++
	}
	return p.slow >= slowLooks && footprint > smallFootprint && now.After(p.rest)
}

// garbagePercent is how much garbage there may be, in hundredths of what lives, if that
// much is allocated from one look to the next.
func garbagePercent(allocated, live uint64) int {
	between := allocated * uint64(collectEvery/lookEvery)
	for _, percent := range []uint64{10, 25, 50} {
		if between <= live/100*percent {
			return int(percent)
		}
	}
	return 100
}
