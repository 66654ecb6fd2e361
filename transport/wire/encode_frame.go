package wire

import "unicode/utf8"

// AppendFrequent appends m's encoding to b if m is an acquire of one lock, a release or a heartbeat.
// Otherwise it reports false, and the returned slice must not be used.
func (m *ClientFrame) AppendFrequent(b []byte) ([]byte, bool) {
	f, ok := m.GetFrame().(*ClientFrame_Request)
	if !ok || f.Request == nil || len(m.unknownFields) > 0 {
		return b, false
	}
	b = open(b, 2<<3|length)
	begin := len(b)
	if b, ok = f.Request.append(b); !ok {
		return b, false
	}
	return shut(b, begin), true
}

func (m *Request) append(b []byte) ([]byte, bool) {
	if len(m.unknownFields) > 0 || len(m.Acked) > encodedMost {
		return b, false
	}
	b = appendNumber(b, 1<<3|varint, m.Id)
	b = appendNumber(b, 2<<3|varint, m.SessionId)
	b = appendNumber(b, 3<<3|varint, m.Seq)
	b = appendNumber(b, 4<<3|varint, m.AckedBelow)
	b = appendPacked(b, 5<<3|length, m.Acked)
	begin, ok := 0, false
	switch body := m.Body.(type) {
	case *Request_Heartbeat:
		b = open(b, 19<<3|length)
		begin, ok = len(b), body.Heartbeat != nil && len(body.Heartbeat.unknownFields) == 0
	case *Request_Acquire:
		b = open(b, 32<<3|length)
		begin = len(b)
		b, ok = body.Acquire.append(b)
	case *Request_Release:
		b = open(b, 33<<3|length)
		begin = len(b)
		b, ok = body.Release.append(b)
	}
	if !ok {
		return b, false
	}
	return shut(b, begin), true
}

// AppendFrequent appends m's encoding to b if m is a plain answer or the outcome of a wait. Otherwise it
// reports false, and the returned slice must not be used.
func (m *ServerFrame) AppendFrequent(b []byte) ([]byte, bool) {
	if m == nil || len(m.unknownFields) > 0 {
		return b, false
	}
	begin, ok := 0, false
	switch f := m.Frame.(type) {
	case *ServerFrame_Response:
		b = open(b, 2<<3|length)
		begin = len(b)
		b, ok = f.Response.append(b)
	case *ServerFrame_Push:
		b = open(b, 3<<3|length)
		begin = len(b)
		b, ok = f.Push.append(b)
	}
	if !ok {
		return b, false
	}
	return shut(b, begin), true
}

func (m *Response) append(b []byte) ([]byte, bool) {
	if m == nil || m.Result == nil || m.Leader != nil || m.Body != nil || len(m.unknownFields) > 0 {
		return b, false
	}
	b = appendNumber(b, 1<<3|varint, m.Id)
	b, ok := m.Result.append(b)
	return appendNumber(b, 4<<3|varint, m.RemainingTtlMs), ok
}

func (m *Push) append(b []byte) ([]byte, bool) {
	if m == nil || len(m.unknownFields) > 0 {
		return b, false
	}
	body, ok := m.Body.(*Push_Outcome)
	if !ok || body.Outcome == nil {
		return b, false
	}
	return body.Outcome.append(appendNumber(b, 1<<3|varint, m.SessionId))
}

// append appends the result as a field, whose number is 2 in all messages. Results that list holders or a
// cycle, contain a session or report a restore are not frequent.
func (m *Result) append(b []byte) ([]byte, bool) {
	if len(m.Holders)+len(m.Cycle)+len(m.unknownFields) > 0 || m.Session != nil || m.Restored ||
		len(m.Message) > encodedMost || !utf8.ValidString(m.Message) || len(m.Name) > encodedMost || !utf8.ValidString(m.Name) {
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
