package script

// state is what a key was before the script.
type state int

const (
	absent  state = iota
	own           // it has the caller's value
	similar       // it has another value that begins like the caller's
	other         // it has another value
)

var states = []state{absent, own, similar, other}

// content is what a key's value is in the course of the script.
type content int

const (
	contentNone  content = iota // the key is absent
	contentFirst                // the value that it had before the script
	contentValue                // the caller's value, written by the script
)

// deadline is what a key's TTL is in the course of the script.
type deadline int

const (
	deadlineFirst deadline = iota // the one that it had before the script
	deadlineNone
	deadlineSet   // expiry
	deadlineAdded // expiry, added to what remained
)

// key is a key in the course of an evaluation.
type key struct {
	initial  state
	rank     int // the order of the remaining times of the keys
	content  content
	deadline deadline
	expiry   expiry
}

func newKey(initial state, rank int) key {
	k := key{initial: initial, rank: rank}
	if initial != absent {
		k.content = contentFirst
	}
	return k
}

func (k *key) exists() bool { return k.content != contentNone }

// write sets the value to the caller's. It removes the TTL, as Redis does.
func (k *key) write() { k.content, k.deadline = contentValue, deadlineNone }

func (k *key) remove() { k.content, k.deadline = contentNone, deadlineNone }

func (k *key) expire(d deadline, e expiry) { k.deadline, k.expiry = d, e }

// change is how a script changed a key.
type change int

const (
	kept     change = iota
	acquired        // it was absent, and has the caller's value and a TTL
	extended        // it was the caller's, and has the caller's value and a new TTL
	added           // the same, with a longer TTL
	deleted
	foreign // anything else
)

// change returns how the script changed the key.
func (k *key) change() change {
	ownValue := k.content == contentValue || k.content == contentFirst && k.initial == own
	switch {
	case k.initial == absent && !k.exists():
		return kept
	case k.initial != absent && k.content == contentFirst && k.deadline == deadlineFirst:
		return kept
	case !k.exists():
		return deleted
	case k.initial == absent && k.deadline == deadlineSet:
		return acquired
	case ownValue && k.deadline == deadlineSet:
		return extended
	case ownValue && k.deadline == deadlineAdded:
		return added
	}
	return foreign
}
