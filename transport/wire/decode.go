package wire

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// The decoders in this file read the messages that make up nearly all traffic into memory that they
// reuse: acquires of one lock, releases, heartbeats, changes of keys, and the answers to them. They accept such a message
// only in the form that encoders write. Everything else, whether rare, unusual or wrong, is left to the
// protobuf library, so that the two never differ.

// The wire types of fields.
const (
	varint = uint64(protowire.VarintType)
	length = uint64(protowire.BytesType)
	fixed  = uint64(protowire.Fixed64Type)
)

// fields iterates over a message whose fields are in ascending order, each at most once.
type fields struct {
	rest []byte
	many uint64 // the number of the only field that may be repeated

	tag   uint64 // number and type of the current field
	value uint64 // value of a numeric field
	bytes []byte // content of any other field
	odd   bool   // the message does not have the expected form
}

// next advances to the next field. It returns false at the end, and if the message does not have the
// expected form.
func (f *fields) next() bool {
	if len(f.rest) == 0 {
		return false
	}
	tag, n := protowire.ConsumeVarint(f.rest)
	if n < 0 || tag>>3 < f.tag>>3 || tag>>3 == f.tag>>3 && tag>>3 != f.many {
		return f.stop()
	}
	f.tag, f.rest = tag, f.rest[n:]
	switch tag & 7 {
	case varint:
		f.value, n = protowire.ConsumeVarint(f.rest)
	case fixed:
		f.value, n = protowire.ConsumeFixed64(f.rest)
	case length:
		f.bytes, n = protowire.ConsumeBytes(f.rest)
	default:
		n = -1
	}
	if n < 0 {
		return f.stop()
	}
	f.rest = f.rest[n:]
	return true
}

func (f *fields) stop() bool {
	f.odd = true
	return false
}

// text copies the current field, which must be UTF-8.
func (f *fields) text() string {
	if !utf8.Valid(f.bytes) {
		f.odd = true
	}
	return string(f.bytes)
}

// numbers appends the packed numbers of the current field to a slice.
func (f *fields) numbers(to []uint64) []uint64 {
	for b := f.bytes; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			f.odd = true
			return to
		}
		to, b = append(to, v), b[n:]
	}
	return to
}

// operation is memory for what a session's request contains.
type operation struct {
	acked   []uint64
	acquire Acquire
	locks   [1]*LockRequest
	lock    LockRequest
	release Release
}

// retainedAcks bounds the memory for acknowledgements that is kept after a request.
const retainedAcks = 128

// emptyAcks returns the slice for the next request's acknowledgements.
func (o *operation) emptyAcks() []uint64 {
	if cap(o.acked) > retainedAcks {
		return nil
	}
	return o.acked[:0]
}

func (o *operation) decodeAcquire(b []byte) bool {
	f, m := fields{rest: b}, &o.acquire
	for f.next() {
		switch f.tag {
		case 1<<3 | length: // a second lock makes the message odd
			if !o.lock.decode(f.bytes) {
				return false
			}
			o.locks[0] = &o.lock
			m.Locks = o.locks[:]
		case 2<<3 | varint:
			m.Owner = f.value
		case 3<<3 | varint:
			m.WaitMs = uint32(f.value)
		case 4<<3 | varint:
			m.WaitForever = protowire.DecodeBool(f.value)
		case 5<<3 | length:
			m.Value = append([]byte(nil), f.bytes...)
		case 6<<3 | varint:
			m.Order = Order(f.value)
		case 7<<3 | varint:
			m.Reentrant = protowire.DecodeBool(f.value)
		case 8<<3 | varint:
			m.MaxHoldMs = uint32(f.value)
		case 9<<3 | varint:
			m.LockDelayMs = uint32(f.value)
		case 10<<3 | varint:
			m.Notify = protowire.DecodeBool(f.value)
		case 11<<3 | varint:
			m.AllowDeadlock = protowire.DecodeBool(f.value)
		default:
			return false
		}
	}
	return !f.odd
}

func (m *LockRequest) decode(b []byte) bool {
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case 1<<3 | length:
			m.Name = f.text()
		case 2<<3 | varint:
			m.Mode = Mode(f.value)
		case 3<<3 | varint:
			m.Permits = f.value
		case 4<<3 | varint:
			m.Limit = f.value
		default:
			return false
		}
	}
	return !f.odd
}

func (o *operation) decodeRelease(b []byte) bool {
	f, m := fields{rest: b}, &o.release
	for f.next() {
		switch f.tag {
		case 1<<3 | varint:
			m.HoldId = f.value
		case 2<<3 | varint:
			m.Token = f.value
		default:
			return false
		}
	}
	return !f.odd
}

// EntryDecoder decodes log entries one after the other. Its zero value is ready to use. It is not safe
// for concurrent use.
type EntryDecoder struct {
	entry Entry
	rooms []*commandRoom
	known repeated
}

// commandRoom is memory for one command.
type commandRoom struct {
	command Command
	acquire Command_Acquire
	release Command_Release
	operation
	keys *keyRoom // nil until it is needed
}

// retainedCommands bounds the number of commands whose memory is kept after an entry.
const retainedCommands = 1 << 10

// Decode decodes an entry. It drops fields that this program does not know. The entry and its frequent
// commands are valid until the next call, but their strings and values may be kept.
func (d *EntryDecoder) Decode(b []byte) (*Entry, error) {
	clear(d.entry.Commands)
	commands := d.entry.Commands[:0]
	if cap(commands) > retainedCommands {
		commands = nil
	}
	d.entry = Entry{Commands: commands}
	f, m := fields{rest: b, many: 3}, &d.entry
	for f.next() {
		switch f.tag {
		case 1<<3 | varint:
			m.Level = uint32(f.value)
		case 2<<3 | varint:
			m.WallUnixMs = int64(f.value)
		case 3<<3 | length:
			cmd, err := d.command(len(m.Commands), f.bytes)
			if err != nil {
				return nil, err
			}
			m.Commands = append(m.Commands, cmd)
		case 4<<3 | varint:
			m.HashPoint = protowire.DecodeBool(f.value)
		default:
			return d.oddEntry(b)
		}
	}
	if f.odd {
		return d.oddEntry(b)
	}
	return m, nil
}

var discard = proto.UnmarshalOptions{DiscardUnknown: true}

func (d *EntryDecoder) oddEntry(b []byte) (*Entry, error) {
	entry := &Entry{}
	return entry, discard.Unmarshal(b, entry)
}

// command decodes the command at an index of the entry.
func (d *EntryDecoder) command(place int, b []byte) (*Command, error) {
	if room := d.room(place); room.decode(b, &d.known) {
		return &room.command, nil
	}
	cmd := &Command{}
	return cmd, discard.Unmarshal(b, cmd)
}

func (d *EntryDecoder) room(place int) *commandRoom {
	if place < len(d.rooms) {
		return d.rooms[place]
	}
	room := &commandRoom{}
	if place < retainedCommands {
		d.rooms = append(d.rooms, room)
	}
	return room
}

func (r *commandRoom) decode(b []byte, known *repeated) bool {
	*r = commandRoom{operation: operation{acked: r.emptyAcks()}, keys: r.keys}
	f, m := fields{rest: b}, &r.command
	for f.next() {
		switch f.tag {
		case 1<<3 | varint:
			m.SessionId = f.value
		case 2<<3 | varint:
			m.Seq = f.value
		case 3<<3 | varint:
			m.AckedBelow = f.value
		case 4<<3 | length:
			r.acked = f.numbers(r.acked)
			m.Acked = r.acked
		case 5<<3 | length:
			caller, ok := known.callers.get(f.bytes, decodeCaller)
			f.odd, m.Caller = f.odd || !ok, caller
		case 40<<3 | length:
			if r.keys == nil {
				r.keys = &keyRoom{}
			}
			m.Op = &r.keys.op
			f.odd = f.odd || len(f.rest) > 0 || !r.keys.decode(f.bytes, known)
		case 48<<3 | length:
			r.acquire.Acquire, m.Op = &r.operation.acquire, &r.acquire
			f.odd = f.odd || len(f.rest) > 0 || !r.decodeAcquire(f.bytes)
		case 49<<3 | length:
			r.release.Release, m.Op = &r.operation.release, &r.release
			f.odd = f.odd || len(f.rest) > 0 || !r.decodeRelease(f.bytes)
		default:
			return false
		}
	}
	return !f.odd && m.Op != nil
}
