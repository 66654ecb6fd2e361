package client

import (
	"testing"
	"time"
)

// machine simulates the clocks of a machine.
type machine struct {
	boot, mono, wall time.Duration
	reads            int    // reads of the boot clock
	during           func() // called after such a read
}

func (m *machine) clock() *bootClock {
	return &bootClock{
		boot: func() time.Duration {
			m.reads++
			boot := m.boot
			if m.during != nil {
				m.during()
			}
			return boot
		},
		read: func() (wall, mono time.Duration) { return m.wall, m.mono },
	}
}

func (m *machine) pass(d time.Duration) { m.boot, m.mono, m.wall = m.boot+d, m.mono+d, m.wall+d }

func (m *machine) suspend(d time.Duration) { m.boot, m.wall = m.boot+d, m.wall+d }

// TestBootClock checks that the boot clock is itself read only occasionally and still shows a suspend
// immediately, whatever happens to the wall clock.
func TestBootClock(t *testing.T) {
	m := &machine{boot: time.Hour, mono: time.Minute, wall: 9 * time.Hour}
	clock := m.clock()
	same := func() {
		t.Helper()
		if now := clock.Now(); now != m.boot {
			t.Fatalf("it is %v, and the clock says %v", m.boot, now)
		}
	}
	for range 1000 {
		m.pass(10 * time.Microsecond)
		same()
	}
	if m.reads > 2 {
		t.Errorf("%d system calls in 10 ms", m.reads)
	}
	m.suspend(2 * time.Second)
	same()
	m.wall -= time.Hour // the wall clock is set back
	same()
	m.pass(time.Millisecond)
	m.suspend(3 * time.Second)
	m.wall -= 3 * time.Second // this hides the suspend, but not for longer than offsetsFor
	m.pass(offsetsFor)
	same()
}

// TestBootClockHeldUp checks that a delay between two readings makes only that result late, and that the
// clock never goes back.
func TestBootClockHeldUp(t *testing.T) {
	m := &machine{boot: time.Hour}
	clock := m.clock()
	before := clock.Now()
	for i := range 100 {
		m.pass(offsetsFor)
		m.during = func() { m.pass(time.Duration(i%20) * time.Millisecond) }
		if i%3 == 0 {
			m.during = func() { m.suspend(time.Second) }
		}
		now := clock.Now()
		if now < before || now > m.boot {
			t.Fatalf("%v after %v, while it is %v", now, before, m.boot)
		}
		m.during = nil
		m.pass(time.Microsecond)
		if before = clock.Now(); m.boot-before > time.Millisecond {
			t.Fatalf("still %v late", m.boot-before)
		}
	}
}
