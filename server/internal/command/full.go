package command

import (
	"sync"
	"sync/atomic"
)

// maxFull bounds the identities that are remembered as full. Beyond it, refusals are left to the state machine.
const maxFull = 10_000

// fullIdentities are the identities that a quota may refuse what they ask for. It is safe for concurrent use; nothing
// is locked while there are none.
type fullIdentities struct {
	n   atomic.Int64
	all sync.Map
}

func (f *fullIdentities) has(identity string) bool {
	if f.n.Load() == 0 {
		return false
	}
	_, ok := f.all.Load(identity)
	return ok
}

func (f *fullIdentities) add(identity string) {
	if f.n.Load() >= maxFull {
		return
	}
	if _, known := f.all.LoadOrStore(identity, nil); !known {
		f.n.Add(1)
	}
}

func (f *fullIdentities) remove(identity string) {
	if _, known := f.all.LoadAndDelete(identity); known {
		f.n.Add(-1)
	}
}
