package wire

func (m *Caller) append(b []byte) ([]byte, bool) {
	if m == nil || len(m.unknownFields) > 0 || !short(m.Identity) || !short(m.Credential) || !short(m.Address) {
		return b, false
	}
	b = appendText(b, 1<<3|length, m.Identity)
	b = appendText(b, 2<<3|length, m.Credential)
	return appendText(b, 3<<3|length, m.Address), true
}

func (m *ChangeKeys) append(b []byte) ([]byte, bool) {
	if m == nil || len(m.unknownFields) > 0 || len(m.Value) > encodedMost || m.Version != nil || !short(m.NodeId) {
		return b, false
	}
	b = appendNumber(b, 1<<3|varint, uint64(m.Action))
	for _, name := range m.Names {
		if name == "" || !short(name) { // an empty one is not left out of a list
			return b, false
		}
		b = appendText(b, 2<<3|length, name)
	}
	b = appendText(b, 3<<3|length, m.Value)
	b = appendNumber(b, 4<<3|varint, uint64(m.CompareBytes))
	b = appendNumber(b, 5<<3|varint, uint64(m.TtlMs))
	if m.Client != nil {
		var ok bool
		if b, ok = appendMessage(b, 6<<3|length, m.Client); !ok {
			return b, false
		}
	}
	b = appendFlag(b, 8<<3|varint, m.Force)
	b = appendText(b, 9<<3|length, m.NodeId)
	b = appendNumber(b, 10<<3|varint, m.Boot)
	b = appendNumber(b, 11<<3|varint, m.Seq)
	return appendNumber(b, 12<<3|varint, m.AckedBelow), true
}

func (m *ClientInfo) append(b []byte) ([]byte, bool) {
	if m == nil || len(m.unknownFields) > 0 || !short(m.Name) || !short(m.HostName) || !short(m.BootId) || !short(m.Address) {
		return b, false
	}
	b = appendText(b, 1<<3|length, m.Name)
	b = appendText(b, 2<<3|length, m.HostName)
	b = appendText(b, 3<<3|length, m.BootId)
	b = appendNumber(b, 4<<3|varint, uint64(m.Pid))
	b = appendNumber(b, 5<<3|varint, uint64(m.ProcessStartUnixMs))
	for _, l := range m.Labels {
		var ok bool
		if b, ok = appendMessage(b, 6<<3|length, l); !ok {
			return b, false
		}
	}
	return appendText(b, 7<<3|length, m.Address), true
}

func (m *Label) append(b []byte) ([]byte, bool) {
	if m == nil || len(m.unknownFields) > 0 || !short(m.Key) || !short(m.Value) {
		return b, false
	}
	b = appendText(b, 1<<3|length, m.Key)
	return appendText(b, 2<<3|length, m.Value), true
}
