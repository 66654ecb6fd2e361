package main

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
)

// scene is a process whose memory the test sets, and records the actions of its pace.
type scene struct {
	memory
	left    uint64 // the footprint after memory was returned
	takes   time.Duration
	percent int
	given   int
}

func (s *scene) pace() *pace {
	return &pace{
		read:       func() memory { return s.memory },
		setPercent: func(percent int) { s.percent = percent },
		giveBack:   func() { s.given++; s.footprint = s.left; time.Sleep(s.takes) },
		percent:    100,
	}
}

// TestRoomForGarbage checks that garbage gets more room immediately, and less after quietLooks measurements.
func TestRoomForGarbage(t *testing.T) {
	const mib = 1 << 20
	bubble.Test(t, func(t *testing.T) {
		s := &scene{memory: memory{live: 3000 * mib, footprint: 32 * mib}, percent: 100}
		p := s.pace()
		look := func(allocated uint64, percent int) {
			t.Helper()
			s.allocated += allocated * mib
			p.look()
			if s.percent != percent {
				t.Fatalf("%d %%, want %d", s.percent, percent)
			}
		}
		look(200, 100)
		for range quietLooks - 1 {
			look(10, 100)
		}
		look(200, 100) // not quiet
		for range quietLooks - 1 {
			look(10, 100)
		}
		look(10, 10)
		for range 3 * quietLooks {
			look(10, 10)
		}
		look(20, 25) // more, immediately
		look(10, 25)
		look(45, 50)
		for range quietLooks - 1 {
			look(20, 50)
		}
		look(20, 25)
		for range quietLooks {
			look(20, 25) // unchanged
		}
		for range quietLooks - 1 {
			look(1, 25)
		}
		look(1, 10)
	})
}

// TestLessRoomReturnsMemory checks that memory is returned when garbage gets less room, if there is some to return.
func TestLessRoomReturnsMemory(t *testing.T) {
	const mib = 1 << 20
	for footprint, given := range map[uint64]int{514: 0, 515: 1} {
		bubble.Test(t, func(t *testing.T) {
			s := &scene{memory: memory{live: 300 * mib, footprint: footprint * mib}, left: footprint * mib}
			p := s.pace()
			s.allocated += 8 * mib
			p.look()
			for range 3 * quietLooks {
				s.allocated += 4 * mib
				p.look()
			}
			if s.percent != 50 || s.given != given {
				t.Errorf("%d MiB: %d %%, returned %d times, want %d", footprint, s.percent, s.given, given)
			}
		})
	}
}

// TestReadsNowAndThen checks that a process with a large heap, some of whose requests allocate more than the others, does
// not return again and again what they need; and not often, if there is much to return each time.
func TestReadsNowAndThen(t *testing.T) {
	const mib, minutes = 1 << 20, 10
	for name, test := range map[string]struct{ footprint, most int }{
		"room for garbage": {364, 0},
		"much to return":   {365, minutes * 60 / (returnRest / 2)},
	} {
		bubble.Test(t, func(t *testing.T) {
			s := &scene{memory: memory{live: 200 * mib, footprint: uint64(test.footprint) * mib}, left: uint64(test.footprint) * mib, takes: time.Second / 2}
			p := s.pace()
			for i := range minutes * 60 {
				time.Sleep(lookEvery)
				s.allocated += mib
				if i%5 == 0 {
					s.allocated += 4 * mib
				}
				p.look()
			}
			if s.given > test.most || s.given == 0 && test.most > 0 {
				t.Errorf("%s: returned %d times, at most %d are meant", name, s.given, test.most)
			}
		})
	}
}

// TestMemoryIsGivenBack checks that the memory of a load is returned when the load has ended, and not again
// for a while, or sooner if much memory was returned.
func TestMemoryIsGivenBack(t *testing.T) {
	const mib = 1 << 20
	for name, test := range map[string]struct {
		left  uint64
		again int // measurements between the first time and the second
	}{
		"little came of it": {150 * mib, 0},
		"just too little":   {150*mib + 1, 0},
		"much came of it":   {150*mib - 1, quietLooks},
		"all came of it":    {little, 0}, // too little remains for a second time
	} {
		bubble.Test(t, func(t *testing.T) {
			s := &scene{memory: memory{footprint: 200 * mib}, left: test.left, takes: 2 * time.Second}
			p := s.pace()
			look := func(allocated uint64) {
				s.allocated += allocated * mib
				p.look()
			}
			look(100)
			look(10)
			if s.given != 0 {
				t.Fatalf("%s: too soon", name)
			}
			look(10)
			if s.given != 1 || p.fastest != 10*mib || p.slow != 0 || time.Until(p.rest) != returnRest*2*time.Second-2*time.Second {
				t.Fatalf("%s: given back %d times, fastest %d, rest %v", name, s.given, p.fastest, time.Until(p.rest))
			}
			second := 0
			for i := range 2 * quietLooks {
				look(10)
				if s.given == 2 && second == 0 {
					second = i + 1
				}
			}
			if second != test.again {
				t.Errorf("%s: given back again after %d looks, want %d", name, second, test.again)
			}
		})
	}
}

// TestPaceOfTheProcess checks that a pace reads and sets the memory of the process itself.
func TestPaceOfTheProcess(t *testing.T) {
	p := newPace(noBuffers)
	before := p.read()
	if p.allocated == 0 || before.allocated < p.allocated || before.footprint == 0 || p.percent != 100 {
		t.Errorf("%+v, %+v", p, before)
	}
	kept = make([]byte, 8<<20)
	if after := p.read(); after.allocated < before.allocated+8<<20 {
		t.Errorf("%d were allocated, now %d", before.allocated, after.allocated)
	}
	p.giveBack()
	if lives := p.read().live; lives < 8<<20 {
		t.Errorf("%d live", lives)
	}
	kept = nil
}

// kept keeps its value alive.
var kept []byte
