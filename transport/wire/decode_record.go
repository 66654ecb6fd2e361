package wire

import "google.golang.org/protobuf/encoding/protowire"

// SnapshotDecoder decodes the records of a snapshot one after the other. Its zero value is ready to use.
// It is not safe for concurrent use.
type SnapshotDecoder struct {
	record SnapshotRecord
	locks  SnapshotRecord_Lock
	lock   LockRecord
	claims SnapshotRecord_Claim
	claim  ClaimRecord
	wants  [1]*LockRequest
	want   LockRequest
}

// Decode decodes a record. It drops fields that this program does not know. Locks, and claims without
// rare fields, are valid until the next call, but their strings and values may be kept. All other records
// may be kept as a whole.
func (d *SnapshotDecoder) Decode(b []byte) (*SnapshotRecord, error) {
	if d.decode(b) {
		return &d.record, nil
	}
	record := &SnapshotRecord{}
	return record, discard.Unmarshal(b, record)
}

func (d *SnapshotDecoder) decode(b []byte) bool {
	f := fields{rest: b}
	if !f.next() || len(f.rest) > 0 {
		return false
	}
	*d = SnapshotDecoder{}
	switch f.tag {
	case 4<<3 | length:
		d.locks.Lock, d.record.Record = &d.lock, &d.locks
		return d.lock.decode(f.bytes)
	case 5<<3 | length:
		d.claims.Claim, d.record.Record = &d.claim, &d.claims
		return d.decodeClaim(f.bytes)
	}
	return false
}

func (m *LockRecord) decode(b []byte) bool {
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case 1<<3 | length:
			m.Name = f.text()
		case 2<<3 | varint:
			m.Id = f.value
		case 4<<3 | varint:
			m.Order = Order(f.value)
		case 5<<3 | varint:
			m.Limit = f.value
		default:
			return false
		}
	}
	return !f.odd
}

func (d *SnapshotDecoder) decodeClaim(b []byte) bool {
	f, m := fields{rest: b}, &d.claim
	for f.next() {
		switch f.tag {
		case 1<<3 | varint:
			m.Id = f.value
		case 2<<3 | varint:
			m.SessionId = f.value
		case 3<<3 | varint:
			m.Owner = f.value
		case 4<<3 | varint:
			m.Seq = f.value
		case 5<<3 | length: // a second lock makes the message odd
			if !d.want.decode(f.bytes) {
				return false
			}
			d.wants[0] = &d.want
			m.Locks = d.wants[:]
		case 7<<3 | varint:
			m.WaitMs = uint32(f.value)
		case 8<<3 | varint:
			m.WaitForever = protowire.DecodeBool(f.value)
		case 9<<3 | varint:
			m.Generation = f.value
		case 10<<3 | varint:
			m.QueuedUnixMs = int64(f.value)
		case 11<<3 | varint:
			m.Token = f.value
		case 12<<3 | varint:
			m.GrantedRevision = f.value
		case 13<<3 | varint:
			m.GrantedUnixMs = int64(f.value)
		default:
			return false
		}
	}
	return !f.odd
}
