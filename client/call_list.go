package client

import "slices"

// The two lists a call can be in: lane orders it for sending, books is one of its session's lists, either
// the calls to be numbered or the unanswered ones.
const (
	lane = iota
	sessionList
)

type link struct{ prev, next *call }

// callList is a queue of calls from which any call can be removed in constant time.
type callList struct {
	slot       int
	head, tail *call
	n          int
}

func (l *callList) push(k *call) {
	link := &k.links[l.slot]
	link.prev, link.next = l.tail, nil
	if l.tail == nil {
		l.head = k
	} else {
		l.tail.links[l.slot].next = k
	}
	l.tail = k
	l.n++
	if l.slot == lane {
		k.list = l
	} else {
		k.sessionList = l
	}
}

func (l *callList) remove(k *call) {
	link := &k.links[l.slot]
	if link.prev == nil {
		l.head = link.next
	} else {
		link.prev.links[l.slot].next = link.next
	}
	if link.next == nil {
		l.tail = link.prev
	} else {
		link.next.links[l.slot].prev = link.prev
	}
	link.prev, link.next = nil, nil
	l.n--
	if l.slot == lane {
		k.list = nil
	} else {
		k.sessionList = nil
	}
}

// insert puts a call back into its session's list, ordered by sequence number.
func (l *callList) insert(k *call) {
	var later []*call
	for l.tail != nil && l.tail.request.Seq > k.request.Seq {
		later = append(later, l.tail)
		l.remove(l.tail)
	}
	l.push(k)
	for _, k := range slices.Backward(later) {
		l.push(k)
	}
}

// pop removes and returns the first call, or nil.
func (l *callList) pop() *call {
	k := l.head
	if k != nil {
		l.remove(k)
	}
	return k
}
