package replica

import (
	"bytes"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// watch is one receiver's place in the history, which guards it.
type watch struct {
	// At most one of the three is set; without any, everything concerns it.
	name, prefix string
	session      uint64
	// after is the revision that it was to begin after.
	after uint64
	// behind: there may be events for it from position next on. Otherwise there are none.
	behind bool
	next   uint64
	// cut: the history began anew, and the watch cannot go on.
	cut bool
	// wake has room for one.
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

// interest finds the watches that an event concerns without asking each: it is looked up
// for every event while it is applied.
type interest struct {
	watches    int
	everything watchSet
	names      map[string]watchSet
	prefixes   map[string]watchSet
	sessions   map[uint64]watchSet
	// lengths counts the different prefixes of each length.
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

// enter says whether the key is new.
func enter[K comparable](sets map[K]watchSet, key K, w *watch) (first bool) {
	set, ok := sets[key]
	if !ok {
		set = watchSet{}
		sets[key] = set
	}
	set[w] = struct{}{}
	return !ok
}

// leave says whether nobody is left there.
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

// concerned calls f with the watches that the event concerns, with some perhaps more
// than once.
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
