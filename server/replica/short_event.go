package replica

import "github.com/quorumlock/quorumlock/transport/wire"

// shortEventBytes is what an event takes beside its texts.
const shortEventBytes = 88

// shortEvent is an event as the history keeps it. Most events say no more than fits here, and
// then the event itself, which is three times as long, need not stay.
type shortEvent struct {
	revision, session, owner, seq, hold, token, generation uint64
	lock                                                   string
	// whole is the event itself, if it says more than there is room for.
	whole               *wire.Event
	waitMs              uint32
	kind, mode          uint8
	waited, waitForever bool
}

func shorten(e *wire.Event) shortEvent {
	k := shortEvent{
		revision:    e.Revision,
		session:     e.SessionId,
		owner:       e.Owner,
		seq:         e.Seq,
		hold:        e.HoldId,
		token:       e.Token,
		generation:  e.Generation,
		lock:        e.Lock,
		waitMs:      e.WaitMs,
		kind:        uint8(e.Type),
		mode:        uint8(e.Mode),
		waited:      e.Waited,
		waitForever: e.WaitForever,
	}
	if e.Status != 0 || e.TtlMs != 0 || len(e.Locks) > 0 || e.Permits|e.Limit != 0 || e.MaxHoldMs|e.LockDelayMs != 0 ||
		e.Reason != "" || e.Leased || e.Upgrade {
		k.whole = e
	}
	return k
}

// event is the event again. It may be shared: read-only.
func (k *shortEvent) event() *wire.Event {
	if k.whole != nil {
		return k.whole
	}
	return &wire.Event{
		Revision:    k.revision,
		SessionId:   k.session,
		Owner:       k.owner,
		Seq:         k.seq,
		HoldId:      k.hold,
		Token:       k.token,
		Generation:  k.generation,
		Lock:        k.lock,
		WaitMs:      k.waitMs,
		Type:        wire.Event_Type(k.kind),
		Mode:        wire.Mode(k.mode),
		Waited:      k.waited,
		WaitForever: k.waitForever,
	}
}

// locks are all its names, if it has several.
func (k *shortEvent) locks() []string { return k.whole.GetLocks() }

// size is about what it keeps in memory.
func (k *shortEvent) size() int {
	if k.whole != nil {
		return shortEventBytes + size(k.whole)
	}
	return shortEventBytes + len(k.lock)
}
