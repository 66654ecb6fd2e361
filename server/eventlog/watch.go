package eventlog

import (
	"bytes"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Watch is the position of one watch in the log. Log.mu guards it.
type Watch struct {
	// At most one of the next four is set. If none is, every event concerns the watch except audit records, which
	// concern only watches with audit.
	name, prefix string
	session      uint64
	audit        bool
	// after is the revision after which the watch was requested to start.
	after uint64
	// behind is set if there may be events for the watch from position next on. Otherwise there are none.
	behind bool
	next   uint64
	// cut is set if the log has started over, so the watch cannot continue.
	cut bool
	// visible returns an event as the watcher may see it, nil if it may not; nil means that it may see everything.
	visible func(*wire.Event) *wire.Event
	// wake has a capacity of one.
	wake chan struct{}
}

func (w *Watch) trigger() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *Watch) concerns(u *unpacked) bool {
	switch {
	case w.audit || u.audited():
		return w.audit && u.audited()
	case w.name != "":
		return u.names(func(name []byte) bool { return string(name) == w.name })
	case w.prefix != "":
		return u.names(func(name []byte) bool { return bytes.HasPrefix(name, []byte(w.prefix)) })
	case w.session != 0:
		return u.numbers[sessionNumber] == w.session
	}
	return true
}

// watchIndex is the index of watch filters. It finds the watches that an event concerns without checking each
// of them, because it is used for every event while that is applied.
type watchIndex struct {
	watches    int
	everything watchSet
	audits     watchSet
	names      map[string]watchSet
	prefixes   map[string]watchSet
	sessions   map[uint64]watchSet
	// lengths counts the distinct prefixes by length.
	lengths map[int]int
}

type watchSet map[*Watch]struct{}

func newWatchIndex() watchIndex {
	return watchIndex{everything: watchSet{}, audits: watchSet{}, names: map[string]watchSet{}, prefixes: map[string]watchSet{}, sessions: map[uint64]watchSet{}, lengths: map[int]int{}}
}

func (i *watchIndex) enter(w *Watch) {
	i.watches++
	switch {
	case w.audit:
		i.audits[w] = struct{}{}
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

func (i *watchIndex) leave(w *Watch) {
	i.watches--
	switch {
	case w.audit:
		delete(i.audits, w)
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
func enter[K comparable](sets map[K]watchSet, key K, w *Watch) (first bool) {
	set, ok := sets[key]
	if !ok {
		set = watchSet{}
		sets[key] = set
	}
	set[w] = struct{}{}
	return !ok
}

// leave removes a watch from the set of key and reports whether that was the last one.
func leave[K comparable](sets map[K]watchSet, key K, w *Watch) (last bool) {
	delete(sets[key], w)
	if len(sets[key]) > 0 {
		return false
	}
	delete(sets, key)
	return true
}

func (i *watchIndex) all(f func(*Watch)) {
	each(i.everything, f)
	each(i.audits, f)
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
func (i *watchIndex) matching(e *wire.Event, f func(*Watch)) {
	if i.watches == 0 {
		return
	}
	if e.Audit != nil {
		each(i.audits, f)
		return
	}
	each(i.everything, f)
	if e.SessionId != 0 {
		each(i.sessions[e.SessionId], f)
	}
	if e.Lock != "" {
		i.matchingName(e.Lock, f)
	}
	for _, name := range e.Locks {
		if name != e.Lock {
			i.matchingName(name, f)
		}
	}
}

func (i *watchIndex) matchingName(name string, f func(*Watch)) {
	each(i.names[name], f)
	for length := range i.lengths {
		if length <= len(name) {
			each(i.prefixes[name[:length]], f)
		}
	}
}

func each(set watchSet, f func(*Watch)) {
	for w := range set {
		f(w)
	}
}
