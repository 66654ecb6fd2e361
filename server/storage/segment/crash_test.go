package segment

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

var testID = ID{1, 2, 3}

// model is the expected content of a log.
type model struct {
	first, last uint64 // 0 if it is empty
	term        uint64
	// entries include older ones that were deleted at the beginning, because they may reappear.
	entries map[uint64]*raft.Log
}

func (m model) clone() model {
	entries := make(map[uint64]*raft.Log, len(m.entries))
	for i, e := range m.entries {
		entries[i] = e
	}
	m.entries = entries
	return m
}

func (m model) clear() model { return model{term: m.term, entries: map[uint64]*raft.Log{}} }

func (m model) store(batch []*raft.Log) model {
	if m.last != 0 && batch[0].Index != m.last+1 {
		m = m.clear()
	}
	m = m.clone()
	m.first = cmp.Or(m.first, batch[0].Index)
	for _, e := range batch {
		m.last, m.term = e.Index, e.Term
		m.entries[e.Index] = e
	}
	return m
}

func (m model) delete(lowest, highest uint64) model {
	if lowest <= m.first && highest >= m.last {
		return m.clear()
	}
	m = m.clone()
	if lowest <= m.first {
		m.first = highest + 1
		return m
	}
	for i := lowest; i <= m.last; i++ {
		delete(m.entries, i)
	}
	m.last = lowest - 1
	return m
}

// held returns an error unless an opened log has the content of the model.
func (m model) held(l *Log) error {
	first, _ := l.FirstIndex()
	last, _ := l.LastIndex()
	if last != m.last || first > m.first || (first == 0) != (m.first == 0) {
		return fmt.Errorf("entries %d to %d, want %d to %d", first, last, m.first, m.last)
	}
	for i := first; i <= last && i > 0; i++ {
		var e raft.Log
		if err := l.GetLog(i, &e); err != nil {
			return err
		}
		if want := m.entries[i]; want == nil || !same(&e, want) {
			return fmt.Errorf("entry %d is %v, want %v", i, e, want)
		}
	}
	return nil
}

func same(a, b *raft.Log) bool {
	return a.Index == b.Index && a.Term == b.Term && a.Type == b.Type && bytes.Equal(a.Data, b.Data) && a.AppendedAt.Equal(b.AppendedAt)
}

// step is one change, and what the log may hold if the power fails during it.
type step struct {
	name   string
	do     func(*Log) error
	states []model // the last one is that after success
}

func (m model) step(random *rand.Rand) step {
	switch kind := random.IntN(20); {
	case kind < 12 || m.last == 0:
		next := m.last + 1
		states := []model{m}
		if kind == 0 && m.last != 0 {
			next += uint64(1 + random.IntN(20)) // after a snapshot
			states = append(states, m.clear())
		}
		batch := m.batch(random, next)
		return step{fmt.Sprintf("store %d at %d", len(batch), next), func(l *Log) error { return l.StoreLogs(batch) }, append(states, m.store(batch))}
	case kind < 15:
		highest := m.first + random.Uint64N(m.last-m.first+1)
		return m.deletion(m.first, highest)
	case kind < 18:
		lowest := m.first + random.Uint64N(m.last-m.first+1)
		return m.deletion(lowest, m.last)
	}
	return step{"mark", (*Log).Mark, []model{m}}
}

func (m model) deletion(lowest, highest uint64) step {
	return step{fmt.Sprintf("delete %d to %d", lowest, highest), func(l *Log) error { return l.DeleteRange(lowest, highest) }, []model{m, m.delete(lowest, highest)}}
}

func (m model) batch(random *rand.Rand, index uint64) (batch []*raft.Log) {
	term := max(1, m.term) + uint64(random.IntN(8)/7)
	for range 1 + random.IntN(4) {
		e := &raft.Log{Index: index, Term: term, Type: raft.LogType(random.IntN(3)), Data: make([]byte, random.IntN(3)*random.IntN(700))}
		if random.IntN(2) == 0 {
			for i := range e.Data {
				e.Data[i] = byte(random.Uint32()) // otherwise zeros, as in blank sectors
			}
		}
		if random.IntN(2) == 0 {
			e.AppendedAt = time.Unix(0, int64(1+random.Uint32()))
		}
		batch = append(batch, e)
		index++
	}
	return batch
}

var small = Options{ID: testID, Size: 16 * sectorSize}

// crashes runs a log on a disk that loses power again and again.
type crashes struct {
	t       *testing.T
	seed    uint64
	random  *rand.Rand
	disk    *simulated
	log     *Log
	model   model
	reached Position
	lost    int // number of power failures
	cut     int // number of torn writes
}

// recover reopens the log and determines in which of the states it is.
func (c *crashes) recover(what string, states []model) {
	c.t.Helper()
	for calls := range 100 {
		c.lost++
		if c.random.IntN(3) == 0 {
			c.disk = c.disk.restart()
		} else {
			c.disk = c.disk.reboot()
		}
		if c.random.IntN(3) == 0 {
			c.disk.calls = 1 + calls*calls + c.random.IntN(8) // the power fails again meanwhile
		}
		options := small
		options.Reached = c.reached
		if found, err := find(c.disk, testID, c.reached, func(*raft.Log) error { return nil }); err == nil && found.unfinished {
			c.cut++
		}
		l, err := Open(c.disk, options)
		if errors.Is(err, errPower) {
			continue
		}
		if err != nil {
			c.t.Fatalf("seed %d: %s: %v", c.seed, what, err)
		}
		c.log, c.disk.calls = l, -1
		break
	}
	var faults []error
	for _, m := range slices.Backward(states) {
		err := m.held(c.log)
		if err == nil {
			// What was deleted at the beginning may have reappeared.
			c.model = m.clone()
			c.model.first, _ = c.log.FirstIndex()
			return
		}
		faults = append(faults, err)
	}
	c.t.Fatalf("seed %d: %s: %v", c.seed, what, errors.Join(faults...))
}

// run executes steps, with a power failure at one of the next calls.
func (c *crashes) run(steps int) {
	c.t.Helper()
	for range steps {
		s := c.model.step(c.random)
		err := s.do(c.log)
		if c.disk.overwritten != nil {
			c.t.Fatalf("seed %d: %s: %v", c.seed, s.name, c.disk.overwritten)
		}
		if errors.Is(err, errPower) {
			c.recover(s.name, s.states)
			c.disk.calls = c.random.IntN(40)
			continue
		}
		if err != nil {
			c.t.Fatalf("seed %d: %s: %v", c.seed, s.name, err)
		}
		c.model = s.states[len(s.states)-1]
		if first, _ := c.log.FirstIndex(); first != c.model.first {
			c.t.Fatalf("seed %d: %s: the log begins at %d, want %d", c.seed, s.name, first, c.model.first)
		}
		if err := c.model.held(c.log); err != nil {
			c.t.Fatalf("seed %d: %s: %v", c.seed, s.name, err)
		}
		if c.random.IntN(10) == 0 {
			c.reached = c.log.End()
		}
	}
}

func life(t *testing.T, seed uint64) *crashes {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	c := &crashes{t: t, seed: seed, random: random, disk: newSimulated(random), model: model{entries: map[uint64]*raft.Log{}}}
	var err error
	if c.log, err = Create(c.disk, small); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPowerLoss verifies that, whenever the power fails, the log holds what was acknowledged, and of a write
// in progress all or nothing.
func TestPowerLoss(t *testing.T) {
	lives := 300
	if os.Getenv("QUORUMLOCK_CHECK") == "1" {
		lives = 20_000
	}
	lost, cut := 0, 0
	for seed := range uint64(lives) {
		c := life(t, seed)
		c.disk.calls = 1 + c.random.IntN(40)
		c.run(60)
		lost, cut = lost+c.lost, cut+c.cut
	}
	t.Logf("the power went %d times, and tore %d writes", lost, cut)
	if lost < lives || cut < lives/10 {
		t.Error("that is too little to show anything")
	}
}

// TestPowerLossAtEveryCall makes the power fail at each call of one sequence of steps, several times with
// different sectors lost.
func TestPowerLossAtEveryCall(t *testing.T) {
	for call, ended := 1, false; !ended; call++ {
		for chance := range uint64(6) {
			c := life(t, 7)
			c.random = rand.New(rand.NewPCG(8, 8))
			c.disk.calls = call
			for range 40 {
				s := c.model.step(c.random)
				if err := s.do(c.log); errors.Is(err, errPower) {
					c.disk.random = rand.New(rand.NewPCG(uint64(call), chance))
					c.random = c.disk.random
					c.recover(fmt.Sprintf("call %d, %s", call, s.name), s.states)
					break
				}
				c.model = s.states[len(s.states)-1]
			}
			ended = c.lost == 0
		}
	}
}
