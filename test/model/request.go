package model

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// ack processes a client's acknowledgements. An answer that is no longer shown is never shown again.
func (d *Model) ack(s *Session, cmd *wire.Command) {
	s.mark = max(s.mark, cmd.AckedBelow)
	for _, a := range s.shown {
		if a.Waited && a.Said.Status != wire.Status_QUEUED && slices.Contains(cmd.Acked, a.Seq) {
			a.acked = true
		}
	}
	s.shown = slices.DeleteFunc(s.shown, func(a *Answer) bool { return !d.Shown(a) })
}

// Shown reports whether an answer is still remembered.
func (d *Model) Shown(a *Answer) bool {
	s := d.Session(a.Session)
	return s != nil && (a.Seq >= s.mark || a.Waited && !a.acked)
}

func (s *Session) recall(seq uint64) *Answer {
	for _, a := range s.shown {
		if a.Seq == seq {
			return a
		}
	}
	return nil
}

func (d *Model) request(s *Session, cmd *wire.Command) *wire.Result {
	a := s.recall(cmd.Seq)
	if a != nil && a.Digest == digest(cmd) {
		return d.repeat(a)
	}
	if d.forbids(s, cmd) {
		return says(wire.Status_PERMISSION_DENIED) // and not remembered either
	}
	if a != nil {
		return says(wire.Status_INVALID_ARGUMENT)
	}
	if cmd.Seq < s.mark {
		return says(wire.Status_STALE)
	}
	final := 0
	for _, a := range s.shown {
		if a.Said.Status != wire.Status_QUEUED {
			final++
		}
	}
	full := final >= int(d.Limits.MaxWindow)
	if full && !givesUp(cmd) {
		return says(wire.Status_RESOURCE_EXHAUSTED)
	}
	if d.Suspended != 0 && (cmd.GetAcquire() != nil || cmd.GetAcquireCached() != nil || cmd.GetUpgrade() != nil) {
		return says(wire.Status_UNAVAILABLE) // and not remembered: the client may retry
	}
	session, state := d.WeightOf(s), d.Weight()
	d.full = full
	answer := d.execute(s, cmd)
	if d.refusing {
		return answer
	}
	words := d.words(answer)
	if grown := outcomeWeight + words; d.WeightOf(s)+grown > session || d.Weight()+grown > state {
		switch fits := !full && d.affords(s, grown, 0) && (givesUp(cmd) || d.roomForBytes(s.Identity, grown)); {
		case fits:
		case givesUp(cmd):
			return answer
		default:
			return d.exhausted()
		}
	}
	d.note(s, cmd.Seq, digest(cmd), answer)
	return answer
}

// note remembers an answer for repeated requests.
func (d *Model) note(s *Session, seq, digest uint64, answer *wire.Result) {
	if answer.Revision == 0 {
		answer.Revision = d.Revision
	}
	a := &Answer{Session: s.ID, Seq: seq, Digest: digest, Said: proto.CloneOf(answer), Waited: answer.Status == wire.Status_QUEUED, words: d.words(answer)}
	d.Answers = append(d.Answers, a)
	s.shown = append(s.shown, a)
}

// repeat returns a remembered answer. Only that of a wait includes the current holders.
func (d *Model) repeat(a *Answer) *wire.Result {
	again := proto.CloneOf(a.Said)
	again.Holders, again.Position = nil, 0
	if again.Status == wire.Status_QUEUED {
		c := d.Claim(again.HoldId)
		again.Position, again.Holders = d.place(c), d.told(c.Locks, d.taken)
	}
	return again
}

// rewrite ends a wait: it replaces the QUEUED answer by the final one.
func (d *Model) rewrite(session, seq uint64, said *wire.Result) *wire.Result {
	said.Revision = d.Revision
	for _, a := range d.Session(session).shown {
		if a.Seq == seq && a.Said.Status == wire.Status_QUEUED {
			a.Said = said
			d.tellDigest(a)
			if said.Status == wire.Status_NOT_HELD {
				a.words = endedWeight
			}
			return proto.CloneOf(said)
		}
	}
	panic(fmt.Sprintf("request %d of session %d began no wait", seq, session))
}

func (d *Model) execute(s *Session, cmd *wire.Command) *wire.Result {
	switch op := cmd.Op.(type) {
	case *wire.Command_Acquire:
		return d.acquire(s, cmd.Seq, op.Acquire)
	case *wire.Command_AcquireCached:
		return d.acquireAs(s, cmd.Seq, op.AcquireCached)
	case *wire.Command_Release:
		return d.release(s, op.Release)
	case *wire.Command_Cancel:
		return d.cancel(s, op.Cancel)
	case *wire.Command_SetValue:
		return d.setValue(s, op.SetValue)
	case *wire.Command_Upgrade:
		return d.up(s, cmd.Seq, op.Upgrade)
	case *wire.Command_Downgrade:
		return d.down(s, op.Downgrade)
	case *wire.Command_Extend:
		return d.extend(s, op.Extend)
	}
	return says(wire.Status_INVALID_ARGUMENT)
}
