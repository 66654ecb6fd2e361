package workload

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/test/judge"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// aWhile is how long a load runs in these tests.
const aWhile = 1500 * time.Millisecond

// TestLoadWithoutFaults verifies that a load without faults finds nothing, and exercises everything.
func TestLoadWithoutFaults(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.pass(aWhile)
		w.run.Check("nothing")
		w.log.Mark(history.Healed)
		did := w.run.Finish()
		if all := w.faults(); len(all) > 0 {
			t.Errorf("found %q", all)
		}
		t.Log(did)
		if missing := did.Missing(Counts{Grants: 100, Opened: 10, Leased: 2, Writes: 10, Led: 5, Observed: 5}); missing != nil {
			t.Errorf("too little happened: %v", missing)
		}
		v := judge.Run(judge.Input{History: w.log.History(), Entries: w.entries(), Bounds: judge.Bounds{Stamps: true, Answer: w.run.Bound()}})
		t.Log(v.Counts)
		if err := v.Err(); err != nil {
			t.Error(err)
		}
		if err := v.Counts.Enough(judge.Counts{Grants: 100, Contended: 20, Holds: 100, Windows: 1}); err != nil {
			t.Error(err)
		}
	})
}

// TestFinishFinds leaves something behind that Finish must find.
func TestFinishFinds(t *testing.T) {
	for what, c := range map[string]struct {
		fault string
		part  Part
		leave func(w *world)
	}{
		"a hold of nobody": {"held silently: found [load/stray/0 by", Lone, func(w *world) { w.locks(w.stranger("stray"), lock("stray", 0)) }},
		"a wait of nobody": {"awaited by", Line, func(w *world) { w.waits(w.stranger("stray"), lock(lineName, 1)) }},
		"a wait without an answer": {"not answered 12s after healing: map[hot:", Hot, func(w *world) {
			w.locks(w.stranger("stray"), lock("hot", 0))
			w.pass(aWhile) // an actor wants it by then
		}},
		"a session": {"sessions that never ended: [", Lone, func(w *world) { w.stranger(Prefix + "stray") }},
		"a hold that another has": {"held silently", Line, func(w *world) {
			w.force(w.run.lines[0].pinned[1])
			w.locks(w.stranger("stray"), lock(lineName, 1))
		}},
		"a hold that was taken away": {"release load/line/1:", Line, func(w *world) { w.force(w.run.lines[0].pinned[1]) }},
		"a turn": {"in line were", Line, func(w *world) {
			places := w.run.lines[0].places
			places[1], places[2] = places[2], places[1]
		}},
		"a leader whom nobody elected": {"has it won: false", Elections, func(w *world) {
			won, err := w.stranger("stray").Election(lock(elections, 0)).Campaign(w.t.Context())
			if err == nil {
				w.pass(time.Second)
				err = won.Resign(w.t.Context())
			}
			w.must(err)
		}},
		"a session that must not be lost": {"was lost", Lone, func(w *world) {
			w.net.Isolate("lone", "n1")
			w.pass(time.Minute)
			w.net.Heal()
		}},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, Options{Parts: []Part{c.part}}, func(w *world) {
				w.pass(time.Second)
				c.leave(w)
				w.run.Finish()
				w.finds(c.fault)
			})
		})
	}
}

// TestFinishFindsALostWrite lets two writers with the same token overwrite each other.
func TestFinishFindsALostWrite(t *testing.T) {
	d := &resource{name: lock(fenced, 0)}
	inWorld(t, Options{Parts: []Part{{fenced, func(r *Run) { r.protect(d) }}}}, func(w *world) {
		w.pass(time.Second)
		const token = 1 << 60
		for range 2 {
			w.must(d.write(token, 1, 1))
		}
		if did := w.run.Finish(); did[LostUpdates] == 0 {
			t.Errorf("the resource that believes everybody lost nothing: %v", did)
		}
		w.finds("writes with a token were let in, and it reads 1")
	})
}

// TestCheckFinds takes away what a load must not lose, and expects Check to find that.
func TestCheckFinds(t *testing.T) {
	for what, c := range map[string]struct {
		fault string
		take  func(w *world, l *line)
	}{
		"a hold":  {"after a fault load/line/1 is lost: ", func(w *world, l *line) { w.force(l.pinned[1]) }},
		"a place": {"after a fault the line is", func(w *world, l *line) { w.must(l.sessions[1].Close(w.t.Context())) }},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, Options{Parts: []Part{Line}}, func(w *world) {
				w.run.Check("nothing")
				if all := w.faults(); len(all) > 0 {
					t.Errorf("found %q", all)
				}
				c.take(w, w.run.lines[0])
				w.pass(time.Second)
				w.run.Check("a fault")
				w.finds(c.fault)
			})
		})
	}
}

func TestCountsThatAreMissing(t *testing.T) {
	did := Counts{Grants: 2}
	did.Add(Counts{Grants: 1, Leased: 1})
	if missing := did.Missing(Counts{Grants: 3, Leased: 1}); missing != nil {
		t.Errorf("%v of %v", missing, did)
	}
	if missing := did.Missing(Counts{Grants: 4, Led: 1}); len(missing) != 2 {
		t.Errorf("%v of %v", missing, did)
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Error(err)
	}
}

// force forces a hold away, as an operator.
func (w *world) force(h *hold) {
	w.t.Helper()
	_, err := wirecall.Of(w.run.reader).ForceRelease(w.t.Context(), &wire.ForceRelease{HoldId: h.ID(), Token: h.Token(), Reason: "test"})
	w.must(err)
}
