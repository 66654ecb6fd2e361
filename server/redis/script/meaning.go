package script

import "slices"

// meaning is the canonical form of an action: how each key changes by what it was before.
type meaning struct {
	action Action
	// absent is how the keys change if all are absent, own if all are the caller's. In all other cases nothing changes.
	absent, own change
	// each means that a key changes whatever the others are.
	each bool
	// one means that the action has one key.
	one bool
}

// meanings is the table of what scripts can do. The first that matches is the script's action.
var meanings = []meaning{
	{action: Acquire, absent: acquired},
	{action: AcquireOrExtend, absent: acquired, own: extended},
	{action: Extend, own: extended},
	{action: AddTTL, own: added, one: true},
	{action: Release, own: deleted, each: true},
	{action: ReleaseAll, own: deleted},
	{action: Remaining},
	{action: Read, one: true},
}

// classify finds the action and the replies of the script that was evaluated.
func (f *form) classify(runs []*run) error {
	if !f.fixed && !f.many {
		return unknown("it uses no key")
	}
	for _, m := range meanings {
		if !m.fits(f) || slices.ContainsFunc(runs, func(r *run) bool { return !m.agrees(r) }) {
			continue
		}
		replies, err := m.replies(runs)
		if err != nil {
			return err
		}
		f.action, f.replies = m.action, replies
		return nil
	}
	if slices.ContainsFunc(runs, (*run).leavesNoTTL) {
		return unknown("it leaves a key without a TTL: pass one")
	}
	return unknown("it changes keys in a way that no lock does")
}

func (r *run) leavesNoTTL() bool {
	return slices.ContainsFunc(r.keys, func(k key) bool { return k.exists() && k.deadline == deadlineNone })
}

// fits reports whether the action has what the script uses.
func (m meaning) fits(f *form) bool {
	switch {
	case m.one && f.many:
		return false
	case f.prefix != 0 && m.action != AcquireOrExtend:
		return false
	}
	return (f.value == nil) == (m.action == Read)
}

// agrees reports whether the keys changed as the action changes them.
func (m meaning) agrees(r *run) bool {
	for i := range r.keys {
		if r.keys[i].change() != m.expected(r, i) {
			return false
		}
	}
	return true
}

// expected returns how the action changes key i.
func (m meaning) expected(r *run, i int) change {
	switch {
	case m.each && r.owned(i), r.all(r.owned):
		return m.own
	case r.all(r.absent):
		return m.absent
	}
	return kept
}

func (r *run) absent(i int) bool { return r.keys[i].initial == absent }

// owned reports whether a key was the caller's before the script.
func (r *run) owned(i int) bool {
	initial := r.keys[i].initial
	return initial == own || initial == similar && r.form.prefix != 0
}

func (r *run) all(is func(int) bool) bool {
	for i := range r.keys {
		if !is(i) {
			return false
		}
	}
	return true
}

// outcome returns the outcome of the action.
func (m meaning) outcome(r *run) Outcome {
	changed := slices.ContainsFunc(r.keys, func(k key) bool { return k.change() != kept })
	switch {
	case m.action == Read && r.absent(0):
		return Absent
	case m.action == Read, m.action == Remaining && r.all(r.owned):
		return Done
	case m.action == AcquireOrExtend && changed && r.owned(0):
		return Extended
	case changed:
		return Done
	case m.absent == acquired:
		return Other
	}
	for i := range r.keys {
		if !r.owned(i) {
			if r.absent(i) {
				return Absent
			}
			break
		}
	}
	return Other
}
