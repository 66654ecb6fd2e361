package wire_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// decoders returns all decoders, with the message that each of them decodes.
func decoders() []struct {
	empty  proto.Message
	decode func([]byte) (proto.Message, error)
} {
	var entries wire.EntryDecoder
	var requests wire.ClientFrameDecoder
	var answers wire.ServerFrameDecoder
	var records wire.SnapshotDecoder
	return []struct {
		empty  proto.Message
		decode func([]byte) (proto.Message, error)
	}{
		{&wire.Entry{}, func(b []byte) (proto.Message, error) { return entries.Decode(b) }},
		{&wire.ClientFrame{}, func(b []byte) (proto.Message, error) {
			err := requests.Decode(b)
			return requests.Frame, err
		}},
		{&wire.ServerFrame{}, func(b []byte) (proto.Message, error) {
			err := answers.Decode(b)
			return answers.Frame(), err
		}},
		{&wire.SnapshotRecord{}, func(b []byte) (proto.Message, error) { return records.Decode(b) }},
	}
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rare returns messages that the decoders leave to the library, and frequent ones with all fields set.
func rare() []proto.Message {
	full := &wire.Acquire{
		Locks: []*wire.LockRequest{{Name: "permits", Mode: wire.Mode_PERMITS, Permits: 3, Limit: 1 << 31}},
		Owner: 9, WaitMs: 1 << 31, WaitForever: true, Value: []byte("value"), Order: wire.Order_UNFAIR, Reentrant: true,
		MaxHoldMs: 100, LockDelayMs: 200, Notify: true, AllowDeadlock: true,
	}
	several := &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a"}, {Name: "b"}}}
	client := func(req *wire.Request) proto.Message {
		return &wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: req}}
	}
	server := func(result *wire.Result) proto.Message {
		return &wire.ServerFrame{Frame: &wire.ServerFrame_Response{Response: &wire.Response{Id: 3, Result: result}}}
	}
	record := func(c *wire.ClaimRecord) proto.Message {
		return &wire.SnapshotRecord{Record: &wire.SnapshotRecord_Claim{Claim: c}}
	}
	return []proto.Message{
		record(&wire.ClaimRecord{Id: 5, Locks: several.Locks}),
		record(&wire.ClaimRecord{Id: 5, Locks: full.Locks, Value: []byte("value"), QueuedUnixMs: -1, Again: 1 << 31, DelayedUnixMs: 7}),
		record(&wire.ClaimRecord{Id: 5, Locks: full.Locks, Revocation: &wire.Revocation{Reason: "why"}}),
		record(&wire.ClaimRecord{}),
		&wire.SnapshotRecord{Record: &wire.SnapshotRecord_Lock{Lock: &wire.LockRecord{Name: "permits", Id: 1, Order: wire.Order_UNFAIR, Limit: 1 << 40}}},
		&wire.SnapshotRecord{Record: &wire.SnapshotRecord_Lock{}},
		&wire.SnapshotRecord{Record: &wire.SnapshotRecord_Session{Session: &wire.SessionRecord{Id: 3, Leased: true}}}, &wire.SnapshotRecord{},
		&wire.Entry{HashPoint: true, Commands: []*wire.Command{
			{SessionId: 7, Acked: []uint64{1, 1 << 40}, Op: &wire.Command_Acquire{Acquire: full}},
			{SessionId: 8, Op: &wire.Command_Acquire{Acquire: several}},
			{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{Client: &wire.ClientInfo{Name: "ann"}}}},
			{Op: &wire.Command_Release{Release: &wire.Release{}}}, {},
		}},
		&wire.Entry{Commands: []*wire.Command{
			{Caller: &wire.Caller{}, Op: &wire.Command_ChangeKeys{ChangeKeys: &wire.ChangeKeys{
				Names: []string{"a", "", "b"}, CompareBytes: 3, Version: &wire.KeyVersion{HoldId: 7, Generation: 8}, Force: true,
				Client: &wire.ClientInfo{HostName: "h", BootId: "b", Pid: -1, ProcessStartUnixMs: -2, Labels: []*wire.Label{{}, {Key: "k"}}},
			}}},
			{SessionId: 7, Caller: &wire.Caller{Identity: "ann"}, Op: &wire.Command_Acquire{Acquire: full}},
			{Op: &wire.Command_ChangeKeys{ChangeKeys: &wire.ChangeKeys{Client: &wire.ClientInfo{}}}}, {Caller: &wire.Caller{}},
		}},
		client(&wire.Request{Acked: []uint64{1, 2, 3}, Body: &wire.Request_Acquire{Acquire: full}}),
		client(&wire.Request{Body: &wire.Request_Acquire{Acquire: several}}),
		client(&wire.Request{Id: 5, Body: &wire.Request_ListLocks{ListLocks: &wire.ListLocksRequest{Prefix: "x"}}}),
		client(&wire.Request{}),
		&wire.ClientFrame{Frame: &wire.ClientFrame_Hello{Hello: &wire.Hello{Version: 1, Agent: "a"}}}, &wire.ClientFrame{},
		server(&wire.Result{Status: wire.Status_QUEUED, Position: 1, Holders: []*wire.HolderInfo{{HoldId: 4, Client: &wire.ClientInfo{Name: "bob"}}}}),
		server(&wire.Result{Status: wire.Status_OK, Message: "text", SessionId: 4, Session: &wire.SessionState{SessionId: 4}}),
		server(nil), &wire.ServerFrame{},
		&wire.ServerFrame{Frame: &wire.ServerFrame_Push{Push: &wire.Push{SessionId: 4, Body: &wire.Push_Lost{Lost: &wire.SessionLost{}}}}},
		&wire.ServerFrame{Frame: &wire.ServerFrame_Goodbye{Goodbye: &wire.Goodbye{Message: "bye"}}},
	}
}

// stored reports whether the decoded message goes into the state, which must not contain unknown fields.
func stored(m proto.Message) bool {
	switch m.(type) {
	case *wire.Entry, *wire.SnapshotRecord:
		return true
	}
	return false
}

// alike decodes b after another message, and again after a third one: the result must neither depend on
// the one before nor refer to b's memory.
func alike(t *testing.T, b []byte) {
	var before [][]byte
	for _, f := range frequent() {
		before = append(before, marshal(t, f.message))
	}
	for _, d := range decoders() {
		want := d.empty.ProtoReflect().New().Interface()
		options := proto.UnmarshalOptions{DiscardUnknown: stored(want)}
		refused := options.Unmarshal(b, want)
		for _, other := range before {
			_, _ = d.decode(other)
			lent := bytes.Clone(b)
			got, err := d.decode(lent)
			for i := range lent {
				lent[i] ^= 0x55
			}
			if (err != nil) != (refused != nil) {
				t.Fatalf("%x as %T: %v, the library says %v", b, want, err, refused)
			}
			if err == nil && !proto.Equal(got, want) {
				t.Fatalf("%x as %T:\n%v, the library says\n%v", b, want, got, want)
			}
		}
	}
}

// odd returns encodings of frequent messages that no encoder writes.
func odd(t testing.TB) (all [][]byte) {
	release := marshal(t, &wire.Release{HoldId: 3, Token: 4})
	field := func(b []byte, number protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
	}
	request := func(body []byte) { all = append(all, field(nil, 2, body), field(nil, 3, body)) }
	twice := field(field(nil, 33, release), 33, marshal(t, &wire.Release{Token: 5}))
	request(twice)
	request(field(field(nil, 49, release), 49, marshal(t, &wire.Release{Token: 5})))
	request(field(field(nil, 33, release), 19, nil)) // followed by another member of the oneof
	request(field(nil, 33, field(release, 99, []byte("unknown"))))
	request(field(nil, 49, field(release, 99, []byte("unknown"))))
	request(field(field(nil, 33, release), 99, []byte("unknown")))
	request(append(field(nil, 33, release), 5<<3, 1)) // acked, not packed and out of order
	request(append([]byte{5 << 3, 1, 5 << 3, 2}, field(nil, 33, release)...))
	request(field(nil, 5, []byte{0x80}))                                // an incomplete number
	request(field(nil, 32, field(nil, 1, field(nil, 1, []byte{0xff})))) // a name that is not UTF-8
	request(field(nil, 48, field(nil, 1, field(nil, 1, []byte{0xff}))))
	request(field(nil, 19, []byte{1 << 3, 1})) // a heartbeat with content
	request([]byte{2 << 3, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1})
	all = append(all, field(field(nil, 4, nil), 4, []byte{2 << 3, 1}), field(field(nil, 4, nil), 99, nil), field(nil, 4, field(nil, 99, nil)))
	all = append(all, field(field(nil, 4, nil), 5, nil), field(nil, 5, []byte{4 << 3, 1, 3 << 3, 1}), field(nil, 5, field(nil, 5, field(nil, 1, []byte{0xff}))))
	request([]byte{33<<3&0x7f | 0x80 | 1, 2, 0, 0, 0, 0, 0, 0, 0, 0}) // the field number with another wire type
	all = append(all, append(field(nil, 2, twice), 0), append(field(nil, 2, field(nil, 33, release)), field(nil, 2, field(nil, 33, release))...))
	all = append(all, []byte{1 << 3, 7, 1 << 3, 8}, []byte{2 << 3, 8, 1 << 3, 7}, []byte{0}, []byte{0xff})
	return all
}

func TestDecodersAgreeWithTheLibrary(t *testing.T) {
	for _, f := range frequent() {
		alike(t, marshal(t, f.message))
	}
	for _, m := range rare() {
		b := marshal(t, m)
		alike(t, b)
		for i := range b {
			alike(t, b[:i])
		}
	}
	for _, b := range odd(t) {
		alike(t, b)
	}
}

func FuzzDecoders(f *testing.F) {
	for _, m := range frequent() {
		f.Add(marshal(f, m.message))
	}
	for _, m := range rare() {
		f.Add(marshal(f, m))
	}
	for _, b := range odd(f) {
		f.Add(b)
	}
	f.Fuzz(alike)
}

func TestFrequentMessagesAreDecodedWithoutGarbage(t *testing.T) {
	for i, f := range frequent() {
		b, most := marshal(t, f.message), 0.0
		switch f.name {
		case "acquire", "entry-1", "lock-record", "claim-record":
			most = 1 // the name
		case "entry-256":
			most = 128
		case "entry-keys":
			most = 4 // names and values
		}
		for _, d := range decoders() {
			if proto.MessageName(d.empty) != proto.MessageName(f.message) {
				continue
			}
			if n := testing.AllocsPerRun(100, func() { _, _ = d.decode(b) }); n > most {
				t.Errorf("%s (%d): %v allocations, at most %v", f.name, i, n, most)
			}
		}
	}
}

// TestKeptFramesStay checks that a kept frame does not change.
func TestKeptFramesStay(t *testing.T) {
	var d wire.ServerFrameDecoder
	for _, f := range frequent() {
		want, ok := f.message.(*wire.ServerFrame)
		if !ok {
			continue
		}
		if err := d.Decode(marshal(t, want)); err != nil {
			t.Fatal(err)
		}
		kept := d.Frame()
		d.Keep()
		for _, other := range frequent() {
			_ = d.Decode(marshal(t, other.message))
		}
		if !proto.Equal(kept, want) {
			t.Errorf("%s became %v", f.name, kept)
		}
	}
}
