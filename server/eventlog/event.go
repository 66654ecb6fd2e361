package eventlog

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// packed is an event in the form in which the event log stores it: it takes a fifth of the message's memory
// and has no pointers for the garbage collector to follow. It starts with a bit set of the numbers that are
// not 0, followed by these numbers and then the texts.
type packed []byte

// Numbers of an event, by their bit.
const (
	revisionNumber = iota
	typeNumber
	sessionNumber
	ownerNumber
	seqNumber
	sinceNumber // how many revisions lie between its hold's first and its own
	tokenNumber
	modeNumber
	flagsNumber
	waitNumber
	generationNumber
	statusNumber
	ttlNumber
	permitsNumber
	limitNumber
	maxHoldNumber
	lockDelayNumber
	tokensNumber
	allNumbers
)

// Flags of an event.
const (
	waitedFlag = 1 << iota
	waitForeverFlag
	leasedFlag
	upgradeFlag
	partialFlag
	restoredFlag
	identityFlag // the texts begin with the identity
	byValueFlag
	auditFlag // the only text is an audit record, in wire format
)

// pack appends an event to b, prefixed with its length.
func pack(b []byte, e *wire.Event) []byte {
	begin := len(b)
	b = appendTexts(appendNumbers(append(b, 0), e), e)
	size := len(b) - begin - 1
	if size < 1<<7 {
		b[begin] = byte(size)
		return b
	}
	length := binary.AppendUvarint(nil, uint64(size))
	return slices.Replace(b, begin, begin+1, length...)
}

func appendNumbers(b []byte, e *wire.Event) []byte {
	all := [allNumbers]uint64{
		revisionNumber:   e.Revision,
		typeNumber:       uint64(e.Type),
		sessionNumber:    e.SessionId,
		ownerNumber:      e.Owner,
		seqNumber:        e.Seq,
		sinceNumber:      e.Revision - e.HoldId,
		tokenNumber:      e.Token,
		modeNumber:       uint64(e.Mode),
		flagsNumber:      flag(e.Waited, waitedFlag) | flag(e.WaitForever, waitForeverFlag) | flag(e.Leased, leasedFlag) | flag(e.Upgrade, upgradeFlag) | flag(e.Partial, partialFlag) | flag(e.Restored, restoredFlag) | flag(e.Identity != "", identityFlag) | flag(e.ByValue, byValueFlag) | flag(e.Audit != nil, auditFlag),
		waitNumber:       uint64(e.WaitMs),
		generationNumber: e.Generation,
		statusNumber:     uint64(e.Status),
		ttlNumber:        uint64(e.TtlMs),
		permitsNumber:    e.Permits,
		limitNumber:      e.Limit,
		maxHoldNumber:    uint64(e.MaxHoldMs),
		lockDelayNumber:  uint64(e.LockDelayMs),
		tokensNumber:     uint64(e.Tokens),
	}
	set := uint64(1) << revisionNumber // even if it is 0
	for i, n := range all {
		if n != 0 {
			set |= 1 << i
		}
	}
	b = binary.AppendUvarint(b, set)
	for ; set != 0; set &= set - 1 {
		b = binary.AppendUvarint(b, all[bits.TrailingZeros64(set)])
	}
	return b
}

func flag(is bool, bit uint64) uint64 {
	if is {
		return bit
	}
	return 0
}

// appendTexts appends the lock, the reason and the names of several locks, up to the last one that is set, behind
// the identity of an event that has one. An event with an audit record has no other texts.
func appendTexts(b []byte, e *wire.Event) []byte {
	if e.Audit != nil {
		record, err := proto.Marshal(e.Audit)
		if err != nil {
			panic(err) // the state machine has checked that its texts are UTF-8
		}
		return append(b, record...)
	}
	if e.Identity != "" {
		b = appendText(b, e.Identity)
	}
	if e.Lock == "" && e.Reason == "" && len(e.Locks) == 0 {
		return b
	}
	b = appendText(b, e.Lock)
	if e.Reason == "" && len(e.Locks) == 0 {
		return b
	}
	b = appendText(b, e.Reason)
	for _, name := range e.Locks {
		b = appendText(b, name)
	}
	return b
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// cut splits b after its first element, which is prefixed with its length.
func cut(b []byte) (first, rest []byte) {
	length, n := binary.Uvarint(b)
	b = b[n:]
	return b[:length:length], b[length:]
}

// unpacked is a packed event whose numbers have been decoded and whose texts have not.
type unpacked struct {
	numbers [allNumbers]uint64
	texts   []byte
}

// revision returns the first number, which every event has.
func (p packed) revision() uint64 {
	_, n := binary.Uvarint(p)
	revision, _ := binary.Uvarint(p[n:])
	return revision
}

func (p packed) unpack() (u unpacked) {
	set, n := binary.Uvarint(p)
	p = p[n:]
	for ; set != 0; set &= set - 1 {
		u.numbers[bits.TrailingZeros64(set)], n = binary.Uvarint(p)
		p = p[n:]
	}
	u.texts = p
	return u
}

func (u *unpacked) audited() bool { return u.numbers[flagsNumber]&auditFlag != 0 }

// names reports whether fits holds for the name of any of its locks.
func (u *unpacked) names(fits func(name []byte) bool) bool {
	if u.audited() {
		return false
	}
	_, rest := u.identity()
	for i := 0; len(rest) > 0; i++ {
		var text []byte
		if text, rest = cut(rest); i != 1 && fits(text) { // the reason is the second text
			return true
		}
	}
	return false
}

// event returns the original event.
func (u *unpacked) event() *wire.Event {
	n, flags := &u.numbers, u.numbers[flagsNumber]
	e := &wire.Event{
		Revision:    n[revisionNumber],
		Type:        wire.Event_Type(n[typeNumber]),
		SessionId:   n[sessionNumber],
		Owner:       n[ownerNumber],
		Seq:         n[seqNumber],
		HoldId:      n[revisionNumber] - n[sinceNumber],
		Token:       n[tokenNumber],
		Mode:        wire.Mode(n[modeNumber]),
		Waited:      flags&waitedFlag != 0,
		WaitForever: flags&waitForeverFlag != 0,
		Leased:      flags&leasedFlag != 0,
		Upgrade:     flags&upgradeFlag != 0,
		Partial:     flags&partialFlag != 0,
		Restored:    flags&restoredFlag != 0,
		ByValue:     flags&byValueFlag != 0,
		WaitMs:      uint32(n[waitNumber]),
		Generation:  n[generationNumber],
		Status:      wire.Status_Code(n[statusNumber]),
		TtlMs:       uint32(n[ttlNumber]),
		Permits:     n[permitsNumber],
		Limit:       n[limitNumber],
		MaxHoldMs:   uint32(n[maxHoldNumber]),
		LockDelayMs: uint32(n[lockDelayNumber]),
		Tokens:      uint32(n[tokensNumber]),
	}
	u.addTexts(e)
	return e
}

// identity splits the texts behind the identity.
func (u *unpacked) identity() (identity, rest []byte) {
	if u.numbers[flagsNumber]&identityFlag == 0 {
		return nil, u.texts
	}
	return cut(u.texts)
}

func (u *unpacked) addTexts(e *wire.Event) {
	if u.audited() {
		e.Audit = &wire.AuditRecord{}
		if err := proto.Unmarshal(u.texts, e.Audit); err != nil {
			panic(err) // it is what pack has marshalled
		}
		return
	}
	identity, rest := u.identity()
	e.Identity = string(identity)
	for i := 0; len(rest) > 0; i++ {
		var text []byte
		switch text, rest = cut(rest); i {
		case 0:
			e.Lock = string(text)
		case 1:
			e.Reason = string(text)
		default:
			e.Locks = append(e.Locks, string(text))
		}
	}
}
