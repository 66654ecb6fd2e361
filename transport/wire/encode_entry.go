package wire

import "google.golang.org/protobuf/proto"

// AppendEntry appends m's encoding to b. It returns the library's error if a command cannot be encoded,
// for example because a text is not UTF-8.
func AppendEntry(b []byte, m *Entry) ([]byte, error) {
	b = appendNumber(b, 1<<3|varint, uint64(m.Level))
	b = appendNumber(b, 2<<3|varint, uint64(m.WallUnixMs))
	for _, cmd := range m.Commands {
		b = open(b, 3<<3|length)
		begin := len(b)
		grown, ok := cmd.append(b)
		if !ok {
			var err error
			if grown, err = (proto.MarshalOptions{}).MarshalAppend(b, cmd); err != nil {
				return nil, err
			}
		}
		b = shut(grown, begin)
	}
	return appendFlag(b, 4<<3|varint, m.HashPoint), nil
}

func (m *Command) append(b []byte) ([]byte, bool) {
	if m == nil || len(m.unknownFields) > 0 || m.Node != "" {
		return b, false
	}
	b = appendNumber(b, 1<<3|varint, m.SessionId)
	b = appendNumber(b, 2<<3|varint, m.Seq)
	b = appendNumber(b, 3<<3|varint, m.AckedBelow)
	b = appendPacked(b, 4<<3|length, m.Acked)
	if m.Caller != nil {
		var ok bool
		if b, ok = appendMessage(b, 5<<3|length, m.Caller); !ok {
			return b, false
		}
	}
	switch op := m.Op.(type) {
	case *Command_ChangeKeys:
		return appendMessage(b, 40<<3|length, op.ChangeKeys)
	case *Command_Acquire:
		return appendMessage(b, 48<<3|length, op.Acquire)
	case *Command_Release:
		return appendMessage(b, 49<<3|length, op.Release)
	}
	return b, false
}
