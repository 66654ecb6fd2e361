package wire

import (
	"encoding/binary"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// The encoders in this file write what the decoders beside them read, with the same bytes as the protobuf
// library, in one pass without computing sizes first. Messages with any other content are left to the library.

// encodedMost bounds each text and each byte field of a message that these encoders accept, so that
// nothing large is written before its size has been checked.
const encodedMost = 4 << 10

// appendNumber appends a numeric field; 0 is not written.
func appendNumber(b []byte, tag, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendVarint(b, tag), v)
}

// appendFixed appends a numeric field of eight bytes; 0 is not written.
func appendFixed(b []byte, tag, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendFixed64(protowire.AppendVarint(b, tag), v)
}

func appendFlag(b []byte, tag uint64, v bool) []byte {
	return appendNumber(b, tag, protowire.EncodeBool(v))
}

// appendText appends a field of text or bytes; an empty one is not written.
func appendText[T string | []byte](b []byte, tag uint64, v T) []byte {
	if len(v) == 0 {
		return b
	}
	b = protowire.AppendVarint(protowire.AppendVarint(b, tag), uint64(len(v)))
	return append(b, v...)
}

// open starts a message field and reserves one byte for its length. Everything appended to b until shut
// is the message.
func open(b []byte, tag uint64) []byte { return append(protowire.AppendVarint(b, tag), 0) }

// shut ends the message that starts at index begin of b. It moves the message if its length takes more
// than one byte.
func shut(b []byte, begin int) []byte {
	size := len(b) - begin
	var length [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(length[:], uint64(size))
	if n > 1 {
		b = append(b, length[1:n]...)
		copy(b[begin+n-1:], b[begin:begin+size])
	}
	copy(b[begin-1:], length[:n])
	return b
}

// appendMessage appends a message field. It reports false if the message is left to the library.
func appendMessage[M interface{ append(b []byte) ([]byte, bool) }](b []byte, tag uint64, m M) ([]byte, bool) {
	b = open(b, tag)
	begin := len(b)
	b, ok := m.append(b)
	if !ok {
		return b, false
	}
	return shut(b, begin), true
}

func (m *Acquire) append(b []byte) ([]byte, bool) {
	if m == nil || len(m.unknownFields) > 0 || len(m.Locks) != 1 || len(m.Value) > encodedMost {
		return b, false
	}
	b, ok := appendMessage(b, 1<<3|length, m.Locks[0])
	if !ok {
		return b, false
	}
	b = appendNumber(b, 2<<3|varint, m.Owner)
	b = appendNumber(b, 3<<3|varint, uint64(m.WaitMs))
	b = appendFlag(b, 4<<3|varint, m.WaitForever)
	b = appendText(b, 5<<3|length, m.Value)
	b = appendNumber(b, 6<<3|varint, uint64(m.Order))
	b = appendFlag(b, 7<<3|varint, m.Reentrant)
	b = appendNumber(b, 8<<3|varint, uint64(m.MaxHoldMs))
	b = appendNumber(b, 9<<3|varint, uint64(m.LockDelayMs))
	b = appendFlag(b, 10<<3|varint, m.Notify)
	return appendFlag(b, 11<<3|varint, m.AllowDeadlock), true
}

func (m *LockRequest) append(b []byte) ([]byte, bool) {
	if m == nil || len(m.unknownFields) > 0 || !short(m.Name) {
		return b, false
	}
	b = appendText(b, 1<<3|length, m.Name)
	b = appendNumber(b, 2<<3|varint, uint64(m.Mode))
	b = appendNumber(b, 3<<3|varint, m.Permits)
	return appendNumber(b, 4<<3|varint, m.Limit), true
}

func (m *Release) append(b []byte) ([]byte, bool) {
	if m == nil || len(m.unknownFields) > 0 {
		return b, false
	}
	b = appendNumber(b, 1<<3|varint, m.HoldId)
	return appendNumber(b, 2<<3|varint, m.Token), true
}

// short reports whether these encoders accept a text.
func short(text string) bool { return len(text) <= encodedMost && utf8.ValidString(text) }

// appendPacked appends a field of packed numbers; an empty one is not written.
func appendPacked(b []byte, tag uint64, numbers []uint64) []byte {
	if len(numbers) == 0 {
		return b
	}
	b = open(b, tag)
	begin := len(b)
	for _, v := range numbers {
		b = protowire.AppendVarint(b, v)
	}
	return shut(b, begin)
}
