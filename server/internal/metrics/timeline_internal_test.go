package metrics

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestTimeline verifies that numbers are dated exactly enough, in bounded memory, whatever the pauses between them.
func TestTimeline(t *testing.T) {
	for name, pause := range map[string]func(r *rand.Rand, i int) time.Duration{
		"busy":    func(*rand.Rand, int) time.Duration { return 20 * time.Microsecond },
		"idle":    func(*rand.Rand, int) time.Duration { return time.Minute },
		"at once": func(*rand.Rand, int) time.Duration { return 0 },
		"bursts": func(r *rand.Rand, i int) time.Duration {
			if i%1_000 == 0 {
				return time.Duration(r.IntN(1e9)) * 1_000
			}
			return time.Duration(r.IntN(1e5))
		},
		"ever slower": func(_ *rand.Rand, i int) time.Duration { return time.Duration(i) * time.Duration(i) },
	} {
		random := rand.New(rand.NewPCG(1, 2))
		var line timeline
		line.begin(100)
		dates := map[uint64]time.Duration{}
		now, number := time.Duration(0), uint64(100)
		for i := range 100_000 {
			now += pause(random, i)
			number += 1 + random.Uint64N(3)
			line.add(number, now)
			if i%97 == 0 {
				dates[number] = now
			}
			if len(line.marks) > maxMarks {
				t.Fatalf("%s: %d marks", name, len(line.marks))
			}
		}
		for number, want := range dates {
			if got, known := line.date(number); !known || got < want || got-want > (now-want)/precision {
				t.Errorf("%s: the date of %d is %v, %v, want %v, %v ago", name, number, got, known, want, now-want)
			}
		}
	}
}

// TestTimelineKnowsOnlyItsOwn verifies that numbers have no date that are from before the timeline, from before its last
// beginning, or from the future.
func TestTimelineKnowsOnlyItsOwn(t *testing.T) {
	var line timeline
	want := func(when string, number uint64, at time.Duration, known bool) {
		t.Helper()
		if got, ok := line.date(number); got != at || ok != known {
			t.Errorf("%s: the date of %d is %v, %v, want %v, %v", when, number, got, ok, at, known)
		}
	}
	want("never begun", 1, 0, false)
	line.begin(10)
	want("begun", 11, 0, false)
	line.add(12, 7)
	line.add(15, 9)
	want("from before", 10, 0, false)
	want("the first", 11, 7, true)
	want("the last of a mark", 12, 7, true)
	want("between marks", 13, 9, true)
	want("from the future", 16, 0, false)
	line.begin(20)
	want("of an earlier leadership", 13, 0, false)
	line.add(21, 11)
	want("granted by another node", 16, 0, false)
	want("of this leadership", 21, 11, true)
}

// BenchmarkFollow measures what an entry costs with a grant and the end of a hold.
func BenchmarkFollow(b *testing.B) {
	c, events := newClaims(), grantsAndReleases()
	c.begin(0, 0)
	b.ReportAllocs()
	for i := range b.N {
		events[0].Token, events[1].Token = uint64(i+2), uint64(i+1)
		c.follow(events, time.Now())
	}
}
