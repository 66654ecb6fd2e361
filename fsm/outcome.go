package fsm

import (
	"cmp"
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// outcome is the remembered result of a request.
type outcome struct {
	seq, revision, holdID, token uint64
	// digest is the digest of the request.
	digest uint64
	// refusal is nil if there is nothing to say besides the status.
	refusal *refusal
	status  wire.Status_Code
	count   uint32
	// waited outcomes are forgotten only once the client has acknowledged them.
	waited bool
}

// refusal is what the answer to a request contains besides the status.
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

// finals returns 1 if the outcome is final, 0 if not.
func (o outcome) finals() uint64 {
	if o.final() {
		return 1
	}
	return 0
}

// window contains the outcomes of a session in the order of their sequence numbers. Most sessions have
// one or two, and new ones usually go to the end, so a search costs next to nothing.
type window struct {
	outcomes []outcome
	// final counts the final outcomes; bytes are the units of all outcomes.
	final, bytes uint64
	version
}

// find returns the index of a request's outcome, or of the first one behind it.
func (w *window) find(seq uint64) (place int, found bool) {
	if n := len(w.outcomes); n == 0 || w.outcomes[n-1].seq < seq {
		return n, false
	}
	if first := w.outcomes[0].seq; first >= seq {
		return 0, first == seq
	}
	return slices.BinarySearchFunc(w.outcomes, seq, func(o outcome, seq uint64) int { return cmp.Compare(o.seq, seq) })
}

// set inserts an outcome and returns the one that it replaces.
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

// remove removes an outcome, which must exist.
func (w *window) remove(seq uint64) (old outcome) {
	i, _ := w.find(seq)
	old = w.outcomes[i]
	w.final -= old.finals()
	w.bytes -= old.units()
	w.outcomes = slices.Delete(w.outcomes, i, i+1)
	w.shrink()
	return old
}

// removeImmediate removes the outcomes with sequence numbers in [from, to) that did not wait, and
// calls fn for each.
func (w *window) removeImmediate(from, to uint64, fn func(outcome)) {
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

// shrink frees memory that is left from a busier time.
func (w *window) shrink() {
	if cap(w.outcomes) > 16 && len(w.outcomes) < cap(w.outcomes)/2 {
		w.outcomes = slices.Clone(w.outcomes)
	}
}

// outcomes writes to the windows of all sessions. Like a table, it can roll back the running command.
type outcomes struct {
	journal []rewritten
	fault   func()
}

// rewritten is the previous state of an outcome in a window.
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

func (t *outcomes) deleteImmediate(w *window, from, to uint64) {
	t.begin()
	w.removeImmediate(from, to, func(o outcome) { t.journal = append(t.journal, rewritten{w, o, true}) })
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

// editWindow returns the window of a session for changing. The session must have been edited.
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

// remembered returns the outcomes in a session's window, for reading.
func (s *session) remembered() []outcome {
	if s.window == nil {
		return nil
	}
	return s.window.outcomes
}

// outcome returns the outcome of one request.
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
