package client

import (
	"testing"
	"time"
)

// TestPace checks how long a search waits before it asks the next member: longer and longer while nothing is heard, but
// never so long that the shortest session could end meanwhile.
func TestPace(t *testing.T) {
	const ms = time.Millisecond
	for most, want := range map[time.Duration][]time.Duration{
		time.Second: {250 * ms, 500 * ms, time.Second, time.Second},
		400 * ms:    {250 * ms, 400 * ms, 400 * ms},
		50 * ms:     {50 * ms, 50 * ms},
	} {
		now := time.Second
		p := newPace(now, most)
		for i, step := range want {
			if p.asked(now); p.next < now+step*3/4 || p.next > now+step {
				t.Errorf("at most %v: question %d %v after the one before, want %v", most, i, p.next-now, step)
			}
			now = p.next
		}
		if p.hurry(now); p.next < now || p.next > now+spreadFailed || p.step != want[0] {
			t.Errorf("at most %v: %v after a refusal, then %v", most, p.next-now, p.step)
		}
	}
}
