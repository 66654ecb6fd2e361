package wire

// AppendFrequent appends r's encoding to b if it is the record of a lock or of a claim, of which a
// snapshot has one for each lock and each claim. For other records, and for claims with rare fields, it
// reports false, and the returned slice must not be used.
func (r *SnapshotRecord) AppendFrequent(b []byte) ([]byte, bool) {
	if r == nil || len(r.unknownFields) > 0 {
		return b, false
	}
	switch record := r.Record.(type) {
	case *SnapshotRecord_Lock:
		return appendMessage(b, 4<<3|length, record.Lock)
	case *SnapshotRecord_Claim:
		return appendMessage(b, 5<<3|length, record.Claim)
	}
	return b, false
}

func (m *LockRecord) append(b []byte) ([]byte, bool) {
	if m == nil || len(m.unknownFields) > 0 || !short(m.Name) {
		return b, false
	}
	b = appendText(b, 1<<3|length, m.Name)
	b = appendNumber(b, 2<<3|varint, m.Id)
	b = appendNumber(b, 4<<3|varint, uint64(m.Order))
	return appendNumber(b, 5<<3|varint, m.Limit), true
}

func (m *ClaimRecord) append(b []byte) ([]byte, bool) {
	if m == nil || len(m.unknownFields) > 0 || len(m.Locks) != 1 || len(m.Value) > encodedMost || m.Revocation != nil || m.Upgrade != nil {
		return b, false
	}
	b = appendNumber(b, 1<<3|varint, m.Id)
	b = appendNumber(b, 2<<3|varint, m.SessionId)
	b = appendNumber(b, 3<<3|varint, m.Owner)
	b = appendNumber(b, 4<<3|varint, m.Seq)
	b, ok := appendMessage(b, 5<<3|length, m.Locks[0])
	if !ok {
		return b, false
	}
	b = appendText(b, 6<<3|length, m.Value)
	b = appendNumber(b, 7<<3|varint, uint64(m.WaitMs))
	b = appendFlag(b, 8<<3|varint, m.WaitForever)
	b = appendNumber(b, 9<<3|varint, m.Generation)
	b = appendNumber(b, 10<<3|varint, uint64(m.QueuedUnixMs))
	b = appendNumber(b, 11<<3|varint, m.Token)
	b = appendNumber(b, 12<<3|varint, m.GrantedRevision)
	b = appendNumber(b, 13<<3|varint, uint64(m.GrantedUnixMs))
	b = appendFlag(b, 15<<3|varint, m.AllowDeadlock)
	b = appendFlag(b, 16<<3|varint, m.Notify)
	b = appendFlag(b, 17<<3|varint, m.Wanted)
	b = appendNumber(b, 18<<3|varint, uint64(m.Again))
	b = appendNumber(b, 19<<3|varint, uint64(m.MaxHoldMs))
	b = appendNumber(b, 20<<3|varint, m.HoldGeneration)
	b = appendNumber(b, 21<<3|varint, uint64(m.LockDelayMs))
	b = appendNumber(b, 24<<3|varint, m.DelayGeneration)
	b = appendNumber(b, 25<<3|varint, uint64(m.DelayedUnixMs))
	b = appendNumber(b, 26<<3|varint, m.GraceGeneration)
	b = appendNumber(b, 27<<3|varint, uint64(m.Tokens))
	return appendNumber(b, 28<<3|varint, uint64(m.IdleMs)), true
}
