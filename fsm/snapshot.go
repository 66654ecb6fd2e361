package fsm

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// snapshotVersion is the version of the format. A change that older programs cannot read needs a new
// version; new record kinds and fields only need a higher feature level.
const snapshotVersion = 1

// HashFormat is the version of the bytes that states are hashed by. Increase it with every change of what
// WriteSnapshot writes for a state that older programs can be in, so that nodes with different programs
// do not mistake their formats for a difference in their states.
const HashFormat = 2

// maxRecordBytes bounds one record. A claim for the maximum number of locks with the longest names
// stays far below.
const maxRecordBytes = 1 << 20

// WriteSnapshot writes the whole state: records sorted by kind and key, each preceded by its length as a
// varint, and a trailer with their number and checksum. Equal states produce equal bytes.
func (m *Machine) WriteSnapshot(w io.Writer) error { return m.write(w, false) }

// omittedValue is the value of every key in a backup.
const omittedValue = "-"

// WriteBackup writes the whole state like WriteSnapshot, but without the values of keys, by which their owners prove
// themselves. A restore ends all holds, so it does not need them.
func (m *Machine) WriteBackup(w io.Writer) error { return m.write(w, true) }

func (m *Machine) write(w io.Writer, omitValues bool) error {
	out := &recordWriter{w: bufio.NewWriterSize(w, 64<<10), sum: sha256.New(), omitValues: omitValues}
	out.write(&wire.SnapshotRecord{Record: &wire.SnapshotRecord_Header{Header: m.header()}})
	m.writeMembers(out)
	m.writeSessions(out)
	m.writeLocks(out)
	m.writeClaims(out)
	m.writeOutcomes(out)
	m.writeAudit(out)
	m.writeRemoved(out)
	m.writeAccess(out)
	m.writeKeys(out)
	out.write(&wire.SnapshotRecord{Record: &wire.SnapshotRecord_Trailer{Trailer: &wire.SnapshotTrailer{
		Records: out.records,
		Sha256:  out.sum.Sum(nil),
	}}})
	if out.err == nil {
		out.err = out.w.Flush()
	}
	if out.err != nil {
		return fmt.Errorf("write snapshot: %w", out.err)
	}
	return nil
}

func (m *Machine) header() *wire.SnapshotHeader {
	s := m.state
	return &wire.SnapshotHeader{
		Version:       snapshotVersion,
		Level:         s.level,
		ClusterId:     s.clusterID,
		Revision:      s.revision,
		Token:         s.token,
		Term:          s.term,
		LeaderId:      s.leaderID,
		LastSessionId: s.lastSession,
		LastLockId:    s.lastLock,
		Settings:      s.settings,
		Discarded:     s.discarded,
		AppliedIndex:  s.index,
		Lineage:       s.lineage,
		LastAuditId:   s.lastAudit,

		GrantsSuspended: s.suspended,
		FirstAct:        s.firstAct,
		SessionFloor:    s.sessionFloor,
		TermStarts:      s.starts,

		AlarmsAcknowledged: s.acknowledged,
		PolicyRevision:     m.Access().revision,
		Certified:          m.Access().certified,
		LastBackup:         s.backup,
	}
}

func (m *Machine) writeMembers(out *recordWriter) {
	m.members.each("", func(member *wire.Member) bool {
		return out.write(&wire.SnapshotRecord{Record: &wire.SnapshotRecord_Member{Member: member}})
	})
}

func (m *Machine) writeSessions(out *recordWriter) {
	var body wire.SessionRecord
	record := &wire.SnapshotRecord{Record: &wire.SnapshotRecord_Session{Session: &body}}
	m.sessions.each(0, func(s *session) bool {
		body.Id = s.id
		body.SecretHash = append(body.SecretHash[:0], s.secretHash...)
		body.TtlMs = s.ttl
		body.Generation = s.generation
		body.Client = s.client
		body.OpenedUnixMs = s.opened
		body.AckedBelow = s.ackedBelow
		body.Leased = s.leased
		body.Unconfirmed = s.unconfirmed
		body.Identity = s.identity
		body.SearchAllowance = uint32(s.searchAllowance)
		k := cmp.Or(s.key, noKey)
		body.OwnerValue = append(body.OwnerValue[:0], k.value...)
		if out.omitValues && s.key != nil {
			body.OwnerValue = append(body.OwnerValue[:0], omittedValue...)
		}
		body.RemainingMs = k.remaining
		return out.write(record)
	})
}

func (m *Machine) writeLocks(out *recordWriter) {
	var body wire.LockRecord
	record := &wire.SnapshotRecord{Record: &wire.SnapshotRecord_Lock{Lock: &body}}
	m.locks.each("", func(l *lock) bool {
		body.Name, body.Id = l.name, l.id
		body.Order, body.Limit = l.order(), uint64(l.limit)
		return out.write(record)
	})
}

func (m *Machine) writeClaims(out *recordWriter) {
	var body wire.ClaimRecord
	record := &wire.SnapshotRecord{Record: &wire.SnapshotRecord_Claim{Claim: &body}}
	m.claims.each(0, func(c *claim) bool {
		body.Id, body.SessionId, body.Owner, body.Seq = c.id, c.session, c.owner, c.seq
		body.Locks = requestsOf(body.Locks, c.wants())
		body.WaitMs, body.WaitForever, body.Generation = c.waitMs, c.waitForever, c.generation()
		body.QueuedUnixMs, body.GrantedUnixMs = c.queued(), c.granted()
		body.Token, body.GrantedRevision = c.token, c.grantedRevision()
		extraRecord(&body, c.options())
		return out.write(record)
	})
}

// requestsOf returns the locks of a claim. It reuses the memory of those of another claim.
func requestsOf(known []*wire.LockRequest, wants []want) []*wire.LockRequest {
	for len(known) < len(wants) {
		known = append(known, &wire.LockRequest{})
	}
	for i, w := range wants {
		known[i].Name, known[i].Mode, known[i].Permits = w.lock.name, w.mode, uint64(w.permits)
	}
	return known[:len(wants)]
}

func extraRecord(body *wire.ClaimRecord, e extra) {
	body.Value = e.value
	body.AllowDeadlock, body.Notify, body.Wanted = e.allowDeadlock, e.notify, e.wanted
	body.Again, body.LockDelayMs = e.again, e.lockDelayMs
	body.Tokens, body.IdleMs = e.tokens, e.idleMs
	body.MaxHoldMs, body.HoldGeneration = e.maxHoldMs, e.holdGeneration
	body.Revocation, body.GraceGeneration = e.revocation, e.graceGeneration
	body.DelayGeneration, body.DelayedUnixMs = e.delayGeneration, e.delayed
	body.Upgrade = nil
	if u := e.upgrade; u != nil {
		body.Upgrade = &wire.UpgradeRecord{
			Seq:           u.seq,
			WaitMs:        u.waitMs,
			WaitForever:   u.waitForever,
			QueuedUnixMs:  u.queued,
			AllowDeadlock: u.allowDeadlock,
		}
	}
}

func (m *Machine) writeOutcomes(out *recordWriter) {
	var body wire.OutcomeRecord
	record := &wire.SnapshotRecord{Record: &wire.SnapshotRecord_Outcome{Outcome: &body}}
	m.sessions.each(0, func(s *session) bool {
		body.SessionId = s.id
		for _, o := range s.remembered() {
			body.Seq, body.Status, body.Message, body.Cycle = o.seq, o.status, "", nil
			if o.refusal != nil {
				body.Message, body.Cycle = o.refusal.message, o.refusal.cycle
			}
			body.Revision, body.HoldId, body.Token, body.Waited, body.Count = o.revision, o.holdID, o.token, o.waited, o.count
			body.Digest = o.digest
			if !out.write(record) {
				return false
			}
		}
		return true
	})
}

func (m *Machine) writeAudit(out *recordWriter) {
	for _, records := range []*table[uint64, *wire.AuditRecord]{&m.audit, &m.imported} {
		records.each(0, func(record *wire.AuditRecord) bool {
			return out.write(&wire.SnapshotRecord{Record: &wire.SnapshotRecord_Audit{Audit: record}})
		})
	}
}

func (m *Machine) writeRemoved(out *recordWriter) {
	m.removed.each(0, func(removed *wire.RemovedMember) bool {
		return out.write(&wire.SnapshotRecord{Record: &wire.SnapshotRecord_RemovedMember{RemovedMember: removed}})
	})
}

func (m *Machine) writeAccess(out *recordWriter) {
	for _, token := range m.Access().tokens {
		out.write(&wire.SnapshotRecord{Record: &wire.SnapshotRecord_Token{Token: token}})
	}
	if policy := m.Access().policy; policy != nil {
		out.write(&wire.SnapshotRecord{Record: &wire.SnapshotRecord_Policy{Policy: policy}})
	}
}

func (m *Machine) writeKeys(out *recordWriter) {
	m.keySenders.each("", func(s keySender) bool {
		return out.write(&wire.SnapshotRecord{Record: &wire.SnapshotRecord_KeySender{KeySender: &wire.KeySenderRecord{
			NodeId: s.node, Boot: s.boot, AckedBelow: s.ackedBelow,
		}}})
	})
	m.keyResults.each(keyRequest{}, func(r *keyResult) bool {
		return out.write(&wire.SnapshotRecord{Record: &wire.SnapshotRecord_KeyResult{KeyResult: &wire.KeyResultRecord{
			NodeId: r.node, Seq: r.seq, Status: r.status, HoldId: r.holdID, Token: r.token, Count: r.count, Digest: r.digest,
		}}})
	})
}

// recordWriter frames and hashes records until the first error.
type recordWriter struct {
	w       *bufio.Writer
	sum     hash.Hash
	buffer  []byte
	records uint64
	// omitValues omits the values of keys.
	omitValues bool
	err        error
}

// write reports whether to continue.
func (o *recordWriter) write(record *wire.SnapshotRecord) bool {
	if o.err != nil {
		return false
	}
	const room = binary.MaxVarintLen64 // for the length in front of the record
	if o.buffer == nil {
		o.buffer = make([]byte, room, 4<<10)
	}
	framed, ok := record.AppendFrequent(o.buffer[:room])
	if !ok {
		if framed, o.err = marshal.MarshalAppend(o.buffer[:room], record); o.err != nil {
			return false
		}
	}
	o.buffer = framed
	length := len(o.buffer) - room
	if length > maxRecordBytes {
		o.err = fmt.Errorf("a record of %d bytes", length)
		return false
	}
	var prefix [room]byte
	n := binary.PutUvarint(prefix[:], uint64(length))
	framed = o.buffer[room-n:]
	copy(framed, prefix[:n])
	o.sum.Write(framed)
	o.records++
	_, o.err = o.w.Write(framed)
	return o.err == nil
}

// marshal produces equal bytes for equal messages.
var marshal = proto.MarshalOptions{Deterministic: true}
