package replica

import (
	"bytes"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// watch is the position of one watch in the event log. history.mu guards it.
type watch struct {
	// At most one of the next three is set. If none is, every event concerns the watch.
	name, prefix string
	session      uint64
	// after is the revision after which the watch was requested to start.
	after uint64
	// behind is set if there may be events for the watch from position next on. Otherwise there are none.
	behind bool
	next   uint64
	// cut is set if the log has started over, so the watch cannot continue.
	cut bool
	// wake has a capacity of one.
	wake chan struct{}
}

func (w *watch) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watch) concerns(u *unpacked) bool {
	switch {
	case w.name != "":
		return u.names(func(name []byte) bool { return string(name) == w.name })
	case w.prefix != "":
		return u.names(func(name []byte) bool { return bytes.HasPrefix(name, []byte(w.prefix)) })
	case w.session != 0:
		return u.numbers[sessionNumber] == w.session
	}
	return true
}

// interest is the index of watch filters. It finds the watches that an event concerns without checking each
// of them, because it is used for every event while that is applied.
type interest struct {
	watches    int
	everything watchSet
	names      map[string]watchSet
	prefixes   map[string]watchSet
	sessions   map[uint64]watchSet
	// lengths counts the distinct prefixes by length.
	lengths map[int]int
}

type watchSet map[*watch]struct{}

func newInterest() interest {
	return interest{everything: watchSet{}, names: map[string]watchSet{}, prefixes: map[string]watchSet{}, sessions: map[uint64]watchSet{}, lengths: map[int]int{}}
}

func (i *interest) enter(w *watch) {
	i.watches++
	switch {
	case w.name != "":
		enter(i.names, w.name, w)
	case w.prefix != "":
		if enter(i.prefixes, w.prefix, w) {
			i.lengths[len(w.prefix)]++
		}
	case w.session != 0:
		enter(i.sessions, w.session, w)
	default:
		i.everything[w] = struct{}{}
	}
}

func (i *interest) leave(w *watch) {
	i.watches--
	switch {
	case w.name != "":
		leave(i.names, w.name, w)
	case w.prefix != "":
		if length := len(w.prefix); leave(i.prefixes, w.prefix, w) {
			if i.lengths[length]--; i.lengths[length] == 0 {
				delete(i.lengths, length)
			}
		}
	case w.session != 0:
		leave(i.sessions, w.session, w)
	default:
		delete(i.everything, w)
	}
}

// enter adds a watch to the set of key and reports whether the key is new.
func enter[K comparable](sets map[K]watchSet, key K, w *watch) (first bool) {
	set, ok := sets[key]
	if !ok {
		set = watchSet{}
		sets[key] = set
	}
	set[w] = struct{}{}
	return !ok
}

// leave removes a watch from the set of key and reports whether that was the last one.
func leave[K comparable](sets map[K]watchSet, key K, w *watch) (last bool) {
	delete(sets[key], w)
	if len(sets[key]) > 0 {
		return false
	}
	delete(sets, key)
	return true
}

func (i *interest) all(f func(*watch)) {
	each(i.everything, f)
	for _, set := range i.names {
		each(set, f)
	}
	for _, set := range i.prefixes {
		each(set, f)
	}
	for _, set := range i.sessions {
		each(set, f)
	}
}

// concerned calls f with the watches that the event concerns, with some of them possibly more than once.
func (i *interest) concerned(e *wire.Event, f func(*watch)) {
	if i.watches == 0 {
		return
	}
	each(i.everything, f)
	if e.SessionId != 0 {
		each(i.sessions[e.SessionId], f)
	}
	if e.Lock != "" {
		i.concernedByName(e.Lock, f)
	}
	for _, name := range e.Locks {
		if name != e.Lock {
			i.concernedByName(name, f)
		}
	}
}

func (i *interest) concernedByName(name string, f func(*watch)) {
	each(i.names[name], f)
	for length := range i.lengths {
		if length <= len(name) {
			each(i.prefixes[name[:length]], f)
		}
	}
}

func each(set watchSet, f func(*watch)) {
	for w := range set {
		f(w)
	}
}
