package wire

import "google.golang.org/protobuf/encoding/protowire"

// keyRoom is memory for a change of keys.
type keyRoom struct {
	op      Command_ChangeKeys
	change  ChangeKeys
	version KeyVersion
	names   []string
}

// retainedNames bounds the memory for names that is kept after a change of keys.
const retainedNames = 64

// repeated are parts of commands that are the same in many of them. Each is decoded once. They may be kept, and must not
// be changed.
type repeated struct {
	callers cache[*Caller]
	clients cache[*ClientInfo]
	nodes   cache[string]
}

// cache is a map from encodings to what they mean.
type cache[V any] struct{ known map[string]V }

// maxCached bounds a cache. A full one starts again.
const maxCached = 1 << 10

// get returns what b means. If it is not known, that is the result of decode, unless this reports false.
func (c *cache[V]) get(b []byte, decode func([]byte) (V, bool)) (V, bool) {
	if v, ok := c.known[string(b)]; ok {
		return v, true
	}
	v, ok := decode(b)
	if !ok {
		return v, false
	}
	if c.known == nil || len(c.known) == maxCached {
		c.known = map[string]V{}
	}
	c.known[string(b)] = v
	return v, true
}

func decodeText(b []byte) (string, bool) {
	f := fields{bytes: b}
	text := f.text()
	return text, !f.odd
}

func decodeCaller(b []byte) (*Caller, bool) {
	f, m := fields{rest: b}, &Caller{}
	for f.next() {
		switch f.tag {
		case 1<<3 | length:
			m.Identity = f.text()
		case 2<<3 | length:
			m.Credential = f.text()
		case 3<<3 | length:
			m.Address = f.text()
		default:
			return nil, false
		}
	}
	return m, !f.odd
}

func decodeClient(b []byte) (*ClientInfo, bool) {
	f, m := fields{rest: b, many: 6}, &ClientInfo{}
	for f.next() {
		switch f.tag {
		case 1<<3 | length:
			m.Name = f.text()
		case 2<<3 | length:
			m.HostName = f.text()
		case 3<<3 | length:
			m.BootId = f.text()
		case 4<<3 | varint:
			m.Pid = int32(f.value)
		case 5<<3 | varint:
			m.ProcessStartUnixMs = int64(f.value)
		case 6<<3 | length:
			l := &Label{}
			f.odd = f.odd || !l.decode(f.bytes)
			m.Labels = append(m.Labels, l)
		case 7<<3 | length:
			m.Address = f.text()
		default:
			return nil, false
		}
	}
	return m, !f.odd
}

func (m *Label) decode(b []byte) bool {
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case 1<<3 | length:
			m.Key = f.text()
		case 2<<3 | length:
			m.Value = f.text()
		default:
			return false
		}
	}
	return !f.odd
}

// decode decodes a change of keys.
func (r *keyRoom) decode(b []byte, known *repeated) bool {
	names := r.names[:0]
	clear(r.names)
	if cap(names) > retainedNames {
		names = nil
	}
	*r = keyRoom{}
	r.op.ChangeKeys = &r.change
	f, m, ok := fields{rest: b, many: 2}, &r.change, true
	for ok && f.next() {
		switch f.tag {
		case 1<<3 | varint:
			m.Action = ChangeKeys_Action(f.value)
		case 2<<3 | length:
			names = append(names, f.text())
		case 3<<3 | length:
			m.Value = append([]byte(nil), f.bytes...)
		case 4<<3 | varint:
			m.CompareBytes = uint32(f.value)
		case 5<<3 | varint:
			m.TtlMs = uint32(f.value)
		case 6<<3 | length:
			m.Client, ok = known.clients.get(f.bytes, decodeClient)
		case 7<<3 | length:
			m.Version, ok = &r.version, r.version.decode(f.bytes)
		case 8<<3 | varint:
			m.Force = protowire.DecodeBool(f.value)
		case 9<<3 | length:
			m.NodeId, ok = known.nodes.get(f.bytes, decodeText)
		case 10<<3 | varint:
			m.Boot = f.value
		case 11<<3 | varint:
			m.Seq = f.value
		case 12<<3 | varint:
			m.AckedBelow = f.value
		default:
			return false
		}
	}
	m.Names, r.names = names, names
	return ok && !f.odd
}

func (m *KeyVersion) decode(b []byte) bool {
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case 1<<3 | varint:
			m.HoldId = f.value
		case 2<<3 | varint:
			m.Generation = f.value
		default:
			return false
		}
	}
	return !f.odd
}
