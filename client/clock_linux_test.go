package client

import (
	"testing"
	"time"
)

// machine is a machine's clocks.
type machine struct {
	boot, mono, wall time.Duration
	looks            int    // at the boot clock
	during           func() // happens once such a look has read
}

func (m *machine) clock() *bootClock {
	return &bootClock{
		boot: func() time.Duration {
			m.looks++
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

// The boot clock is itself read now and then only, and tells of a suspend at once all the
// same, whatever becomes of the wall clock.
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
	if m.looks > 2 {
		t.Errorf("%d system calls in 10 ms", m.looks)
	}
	m.suspend(2 * time.Second)
	same()
	m.wall -= time.Hour // somebody sets it
	same()
	m.pass(time.Millisecond)
	m.suspend(3 * time.Second)
	m.wall -= 3 * time.Second // not to be seen, but for so long
	m.pass(paceFor)
	same()
}

// One that is held up between two readings is late for that look only, and never goes back.
func TestBootClockHeldUp(t *testing.T) {
	m := &machine{boot: time.Hour}
	clock := m.clock()
	before := clock.Now()
	for i := range 100 {
		m.pass(paceFor)
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
