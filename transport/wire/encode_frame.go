package wire

// AppendFrequent appends m's encoding to b if m is an acquire of one lock, a release or a heartbeat without content.
// Otherwise it reports false, and the returned slice must not be used.
func (m *ClientFrame) AppendFrequent(b []byte) ([]byte, bool) {
	f, ok := m.GetFrame().(*ClientFrame_Request)
	if !ok || len(m.unknownFields) > 0 {
		return b, false
	}
	return appendMessage(b, 2<<3|length, f.Request)
}

func (m *Request) append(b []byte) ([]byte, bool) {
	if m == nil || len(m.unknownFields) > 0 || len(m.Acked) > encodedMost {
		return b, false
	}
	b = appendNumber(b, 1<<3|varint, m.Id)
	b = appendNumber(b, 2<<3|varint, m.SessionId)
	b = appendNumber(b, 3<<3|varint, m.Seq)
	b = appendNumber(b, 4<<3|varint, m.AckedBelow)
	b = appendPacked(b, 5<<3|length, m.Acked)
	switch body := m.Body.(type) {
	case *Request_Heartbeat:
		return appendMessage(b, 19<<3|length, body.Heartbeat)
	case *Request_Acquire:
		return appendMessage(b, 32<<3|length, body.Acquire)
	case *Request_Release:
		return appendMessage(b, 33<<3|length, body.Release)
	}
	return b, false
}

func (m *Heartbeat) append(b []byte) ([]byte, bool) {
	return b, m != nil && len(m.unknownFields) == 0 && len(m.Idle) == 0
}

// AppendFrequent appends m's encoding to b if m is a plain answer or the outcome of a wait. Otherwise it
// reports false, and the returned slice must not be used.
func (m *ServerFrame) AppendFrequent(b []byte) ([]byte, bool) {
	if m == nil || len(m.unknownFields) > 0 {
		return b, false
	}
	switch f := m.Frame.(type) {
	case *ServerFrame_Response:
		return appendMessage(b, 2<<3|length, f.Response)
	case *ServerFrame_Push:
		return appendMessage(b, 3<<3|length, f.Push)
	}
	return b, false
}

func (m *Response) append(b []byte) ([]byte, bool) {
	if m == nil || m.Result == nil || m.Leader != nil || m.Body != nil || m.RolledBack || len(m.unknownFields) > 0 {
		return b, false
	}
	b = appendNumber(b, 1<<3|varint, m.Id)
	b, ok := m.Result.append(b)
	b = appendNumber(b, 4<<3|varint, m.RemainingTtlMs)
	b = appendNumber(b, 5<<3|varint, m.Term)
	return appendFixed(b, 6<<3|fixed, m.Nonce), ok
}

func (m *Push) append(b []byte) ([]byte, bool) {
	if m == nil || len(m.unknownFields) > 0 {
		return b, false
	}
	body, ok := m.Body.(*Push_Outcome)
	if !ok || body.Outcome == nil {
		return b, false
	}
	b = appendNumber(b, 1<<3|varint, m.SessionId)
	b = appendNumber(b, 8<<3|varint, m.Term)
	return body.Outcome.append(appendFixed(b, 9<<3|fixed, m.Nonce))
}

// append appends the result as a field, whose number is 2 in all messages. Results that list holders or a
// cycle, contain a session or report a restore are not frequent.
func (m *Result) append(b []byte) ([]byte, bool) {
	if len(m.Holders)+len(m.Cycle)+len(m.unknownFields) > 0 || m.Session != nil || m.Restored ||
		!short(m.Message) || !short(m.Name) {
		return b, false
	}
	b = open(b, 2<<3|length)
	begin := len(b)
	b = appendNumber(b, 1<<3|varint, uint64(m.Status))
	b = appendText(b, 2<<3|length, m.Message)
	b = appendNumber(b, 3<<3|varint, m.Seq)
	b = appendNumber(b, 4<<3|varint, m.Revision)
	b = appendNumber(b, 5<<3|varint, m.HoldId)
	b = appendNumber(b, 6<<3|varint, m.Token)
	b = appendNumber(b, 7<<3|varint, m.Position)
	b = appendNumber(b, 10<<3|varint, uint64(m.Count))
	b = appendNumber(b, 12<<3|varint, m.SessionId)
	b = appendFixed(b, 13<<3|fixed, m.Digest)
	b = appendText(b, 14<<3|length, m.Name)
	return shut(b, begin), true
}
