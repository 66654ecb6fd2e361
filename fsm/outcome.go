package fsm

import (
	"cmp"
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// outcome is what a request came to.
type outcome struct {
	seq, revision, holdID, token uint64
	// digest is that of what was asked.
	digest uint64
	// refusal is nil unless there is something to say.
	refusal *refusal
	status  wire.Status_Code
	count   uint32
	// waited outcomes are forgotten only once the client has said that it has them.
	waited bool
}

// refusal is what a request is told besides its status.
type refusal struct {
	message string
	cycle   []*wire.DeadlockStep
}

func refusalOf(message string, cycle []*wire.DeadlockStep) *refusal {
	if message == "" && len(cycle) == 0 {
		return nil
	}
	return &refusal{message, cycle}
}

func (o outcome) final() bool { return o.status != wire.Status_QUEUED }

// finals counts it if it is final.
func (o outcome) finals() uint64 {
	if o.final() {
		return 1
	}
	return 0
}

// window are the outcomes of a session, by their sequence numbers. Most sessions have one
// or two, and what comes is behind what is there: a search costs next to nothing.
type window struct {
	outcomes []outcome
	// final counts those that are, bytes their units and those of all others.
	final, bytes uint64
	version
}

// find returns the place of a request: that of its outcome, or of the first behind it.
func (w *window) find(seq uint64) (place int, found bool) {
	if n := len(w.outcomes); n == 0 || w.outcomes[n-1].seq < seq {
		return n, false
	}
	if first := w.outcomes[0].seq; first >= seq {
		return 0, first == seq
	}
	return slices.BinarySearchFunc(w.outcomes, seq, func(o outcome, seq uint64) int { return cmp.Compare(o.seq, seq) })
}

// set puts an outcome in and returns the one whose place it takes.
func (w *window) set(o outcome) (old outcome, existed bool) {
	i, existed := w.find(o.seq)
	if !existed {
		w.outcomes = slices.Insert(w.outcomes, i, o)
	} else {
		old, w.outcomes[i] = w.outcomes[i], o
		w.final -= old.finals()
		w.bytes -= old.units()
	}
	w.final += o.finals()
	w.bytes += o.units()
	return old, existed
}

// remove takes an outcome out that is there.
func (w *window) remove(seq uint64) (old outcome) {
	i, _ := w.find(seq)
	old = w.outcomes[i]
	w.final -= old.finals()
	w.bytes -= old.units()
	w.outcomes = slices.Delete(w.outcomes, i, i+1)
	w.shrink()
	return old
}

// removeSettled takes those out from one request to another that did not wait, and gives
// each to fn.
func (w *window) removeSettled(from, to uint64, fn func(outcome)) {
	first, _ := w.find(from)
	last, _ := w.find(to)
	kept := first
	for _, o := range w.outcomes[first:last] {
		if o.waited {
			w.outcomes[kept] = o
			kept++
		} else {
			w.bytes -= o.units()
			fn(o)
		}
	}
	w.final -= uint64(last - kept)
	w.outcomes = slices.Delete(w.outcomes, kept, last)
	w.shrink()
}

// shrink gives memory back that a busier time has left.
func (w *window) shrink() {
	if cap(w.outcomes) > 16 && len(w.outcomes) < cap(w.outcomes)/2 {
		w.outcomes = slices.Clone(w.outcomes)
	}
}

// outcomes writes to the windows of all sessions. Like a table, it can undo the running
// command.
type outcomes struct {
	journal []rewritten
	fault   func()
}

// rewritten is what stood in a window before a write.
type rewritten struct {
	window  *window
	was     outcome
	existed bool
}

func (t *outcomes) put(w *window, o outcome) {
	t.begin()
	old, existed := w.set(o)
	old.seq = o.seq
	t.journal = append(t.journal, rewritten{w, old, existed})
}

func (t *outcomes) delete(w *window, seq uint64) {
	t.begin()
	t.journal = append(t.journal, rewritten{w, w.remove(seq), true})
}

func (t *outcomes) deleteSettled(w *window, from, to uint64) {
	t.begin()
	w.removeSettled(from, to, func(o outcome) { t.journal = append(t.journal, rewritten{w, o, true}) })
}

func (t *outcomes) begin() {
	if t.fault != nil {
		t.fault()
	}
}

func (t *outcomes) commit() { t.journal = emptied(t.journal) }

func (t *outcomes) rollback() {
	for i := len(t.journal) - 1; i >= 0; i-- {
		if r := t.journal[i]; r.existed {
			r.window.set(r.was)
		} else {
			r.window.remove(r.was.seq)
		}
	}
	t.commit()
}

func (t *outcomes) setFault(fn func()) { t.fault = fn }

// editWindow returns the window of a session that is being edited, for changing.
func (m *Machine) editWindow(s *session) *window {
	if s.window == nil || s.window.version != m.sessions.now() {
		own := &window{version: m.sessions.now()}
		if s.window != nil {
			own.outcomes, own.final, own.bytes = slices.Clone(s.window.outcomes), s.window.final, s.window.bytes
		}
		s.window = own
	}
	return s.window
}

// remembered are the outcomes of a session's window, for reading.
func (s *session) remembered() []outcome {
	if s.window == nil {
		return nil
	}
	return s.window.outcomes
}

// outcome is that of one request.
func (s *session) outcome(seq uint64) (outcome, bool) {
	if s.window == nil {
		return outcome{}, false
	}
	i, found := s.window.find(seq)
	if !found {
		return outcome{}, false
	}
	return s.window.outcomes[i], true
}
