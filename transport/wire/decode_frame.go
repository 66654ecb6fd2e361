package wire

import (
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/proto"
)

// ClientFrameDecoder decodes the frames of a client one after the other. Its zero value is ready to use.
// It is not safe for concurrent use.
type ClientFrameDecoder struct {
	// Frame is the last decoded frame. It is valid until the next Decode, but its strings and
	// values may be kept.
	Frame *ClientFrame
	// Frequent is true if Frame is in the decoder's own memory. Otherwise the whole frame may be kept.
	Frequent bool

	frame         ClientFrame
	body          ClientFrame_Request
	request       Request
	acquire       Request_Acquire
	release       Request_Release
	heartbeat     Request_Heartbeat
	heartbeatBody Heartbeat
	operation
}

// Decode decodes b into Frame.
func (d *ClientFrameDecoder) Decode(b []byte) error {
	if d.Frequent = d.decode(b); d.Frequent {
		return nil
	}
	d.Frame = &ClientFrame{}
	return proto.Unmarshal(b, d.Frame)
}

func (d *ClientFrameDecoder) decode(b []byte) bool {
	acked := d.emptyAcks()
	*d = ClientFrameDecoder{}
	d.acked = acked
	d.Frame, d.frame.Frame, d.body.Request = &d.frame, &d.body, &d.request
	f := fields{rest: b}
	return f.next() && f.tag == 2<<3|length && len(f.rest) == 0 && d.decodeRequest(f.bytes)
}

func (d *ClientFrameDecoder) decodeRequest(b []byte) bool {
	f, m := fields{rest: b}, &d.request
	for f.next() {
		switch f.tag {
		case 1<<3 | varint:
			m.Id = f.value
		case 2<<3 | varint:
			m.SessionId = f.value
		case 3<<3 | varint:
			m.Seq = f.value
		case 4<<3 | varint:
			m.AckedBelow = f.value
		case 5<<3 | length:
			d.acked = f.numbers(d.acked)
			m.Acked = d.acked
		case 19<<3 | length:
			d.heartbeat.Heartbeat, m.Body = &d.heartbeatBody, &d.heartbeat
			f.odd = f.odd || len(f.rest)+len(f.bytes) > 0
		case 32<<3 | length:
			d.acquire.Acquire, m.Body = &d.operation.acquire, &d.acquire
			f.odd = f.odd || len(f.rest) > 0 || !d.decodeAcquire(f.bytes)
		case 33<<3 | length:
			d.release.Release, m.Body = &d.operation.release, &d.release
			f.odd = f.odd || len(f.rest) > 0 || !d.decodeRelease(f.bytes)
		default:
			return false
		}
	}
	return !f.odd && m.Body != nil
}

// ServerFrameDecoder decodes the frames of a node one after the other. Its zero value is ready to use. It
// is not safe for concurrent use.
type ServerFrameDecoder struct{ room *serverRoom }

// serverRoom is memory for a plain answer or the outcome of a wait.
type serverRoom struct {
	frame    ServerFrame
	answer   ServerFrame_Response
	response Response
	said     ServerFrame_Push
	push     Push
	outcome  Push_Outcome
	result   Result
	name     []byte       // name in the result: every answer has one, and few are kept
	whole    *ServerFrame // frame, or one that the library has decoded
}

// Decode decodes b. Frame returns the result.
func (d *ServerFrameDecoder) Decode(b []byte) error {
	if d.room == nil {
		d.room = &serverRoom{}
	}
	if d.room.decode(b) {
		return nil
	}
	d.room.whole = &ServerFrame{}
	return proto.Unmarshal(b, d.room.whole)
}

// Frame returns the last decoded frame. It is valid until the next Decode.
func (d *ServerFrameDecoder) Frame() *ServerFrame { return d.room.whole }

// Keep makes the last frame valid permanently. Afterwards Frame must not be called until the next Decode.
func (d *ServerFrameDecoder) Keep() {
	if d.room != nil && d.room.whole == &d.room.frame {
		d.room = nil
	}
}

func (r *serverRoom) decode(b []byte) bool {
	*r = serverRoom{name: r.name[:0]}
	r.whole = &r.frame
	f := fields{rest: b}
	if !f.next() || len(f.rest) > 0 {
		return false
	}
	switch f.tag {
	case 2<<3 | length:
		r.answer.Response, r.frame.Frame = &r.response, &r.answer
		return r.decodeResponse(f.bytes)
	case 3<<3 | length:
		r.said.Push, r.frame.Frame = &r.push, &r.said
		return r.decodePush(f.bytes)
	}
	return false
}

func (r *serverRoom) decodeResponse(b []byte) bool {
	f, m := fields{rest: b}, &r.response
	for f.next() {
		switch f.tag {
		case 1<<3 | varint:
			m.Id = f.value
		case 2<<3 | length:
			m.Result = &r.result
			f.odd = f.odd || !r.decodeResult(f.bytes)
		case 4<<3 | varint:
			m.RemainingTtlMs = f.value
		case 5<<3 | varint:
			m.Term = f.value
		case 6<<3 | fixed:
			m.Nonce = f.value
		default:
			return false
		}
	}
	return !f.odd
}

func (r *serverRoom) decodePush(b []byte) bool {
	f, m := fields{rest: b}, &r.push
	for f.next() {
		switch f.tag {
		case 1<<3 | varint:
			m.SessionId = f.value
		case 2<<3 | length:
			r.outcome.Outcome, m.Body = &r.result, &r.outcome
			f.odd = f.odd || !r.decodeResult(f.bytes)
		case 8<<3 | varint:
			m.Term = f.value
		case 9<<3 | fixed:
			m.Nonce = f.value
		default:
			return false
		}
	}
	return !f.odd
}

// decodeResult accepts results that list no holders or cycle and belong to one request.
func (r *serverRoom) decodeResult(b []byte) bool {
	f, m := fields{rest: b}, &r.result
	for f.next() {
		switch f.tag {
		case 1<<3 | varint:
			m.Status = Status_Code(f.value)
		case 2<<3 | length:
			m.Message = f.text()
		case 3<<3 | varint:
			m.Seq = f.value
		case 4<<3 | varint:
			m.Revision = f.value
		case 5<<3 | varint:
			m.HoldId = f.value
		case 6<<3 | varint:
			m.Token = f.value
		case 7<<3 | varint:
			m.Position = f.value
		case 10<<3 | varint:
			m.Count = uint32(f.value)
		case 12<<3 | varint:
			m.SessionId = f.value
		case 13<<3 | fixed:
			m.Digest = f.value
		case 14<<3 | length:
			f.odd = f.odd || !utf8.Valid(f.bytes)
			r.name = append(r.name, f.bytes...)
			m.Name = unsafe.String(unsafe.SliceData(r.name), len(r.name)) // valid as long as the room
		default:
			return false
		}
	}
	return !f.odd
}
