package wire_test

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// encoded returns what the encoder of this package writes for m behind other bytes, if it accepts m.
func encoded(m proto.Message) ([]byte, bool) {
	f, ok := m.(interface {
		AppendFrequent(b []byte) ([]byte, bool)
	})
	if !ok {
		return nil, false
	}
	before := []byte("before")
	b, ok := f.AppendFrequent(bytes.Clone(before))
	return bytes.TrimPrefix(b, before), ok
}

// alikeEncoded reports whether the encoder accepted the message that the library reads from b.
func alikeEncoded(t *testing.T, b []byte) (taken bool) {
	for _, m := range []proto.Message{&wire.ClientFrame{}, &wire.ServerFrame{}, &wire.SnapshotRecord{}} {
		if proto.Unmarshal(b, m) != nil {
			continue
		}
		got, ok := encoded(m)
		if want := marshal(t, m); ok && !bytes.Equal(got, want) {
			t.Fatalf("%v\nbecame %x, the library says\n%x", m, got, want)
		}
		taken = taken || ok
	}
	var entry wire.Entry
	if (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, &entry) == nil {
		got, err := wire.AppendEntry([]byte("before"), &entry)
		if want := append([]byte("before"), marshal(t, &entry)...); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v\nbecame %x, the library says\n%x", &entry, got, want)
		}
	}
	return taken
}

func TestEncodersAgreeWithTheLibrary(t *testing.T) {
	for _, f := range frequent() {
		if taken := alikeEncoded(t, marshal(t, f.message)); !taken && !strings.HasPrefix(f.name, "entry") {
			t.Errorf("%s is left to the library", f.name)
		}
	}
	for _, m := range rare() {
		alikeEncoded(t, marshal(t, m))
	}
	for _, b := range odd(t) {
		alikeEncoded(t, b)
	}
	for size := range 600 { // every part with a length of one byte and of two
		name := strings.Repeat("n", size)
		acquire := &wire.Acquire{Locks: []*wire.LockRequest{{Name: name}}, Value: []byte(name)}
		for _, m := range []proto.Message{
			&wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: &wire.Request{Acked: make([]uint64, size), Body: &wire.Request_Acquire{Acquire: acquire}}}},
			&wire.ServerFrame{Frame: &wire.ServerFrame_Push{Push: &wire.Push{Body: &wire.Push_Outcome{Outcome: &wire.Result{Message: name}}}}},
			&wire.SnapshotRecord{Record: &wire.SnapshotRecord_Lock{Lock: &wire.LockRecord{Name: name}}},
			&wire.SnapshotRecord{Record: &wire.SnapshotRecord_Claim{Claim: &wire.ClaimRecord{Locks: acquire.Locks, Value: acquire.Value}}},
		} {
			if !alikeEncoded(t, marshal(t, m)) {
				t.Fatalf("%T of %d bytes is left to the library", m, proto.Size(m))
			}
		}
	}
}

// TestEncodersLeaveTheRest checks that messages that the library refuses, or with fields unknown to the
// encoders, are left to the library.
func TestEncodersLeaveTheRest(t *testing.T) {
	acquire := func(locks ...*wire.LockRequest) proto.Message {
		return &wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: &wire.Request{Body: &wire.Request_Acquire{Acquire: &wire.Acquire{Locks: locks}}}}}
	}
	claimed := func(locks ...*wire.LockRequest) proto.Message {
		return &wire.SnapshotRecord{Record: &wire.SnapshotRecord_Claim{Claim: &wire.ClaimRecord{Locks: locks}}}
	}
	for _, m := range []proto.Message{
		acquire(&wire.LockRequest{Name: "\xff"}), acquire(nil), acquire(), acquire(&wire.LockRequest{}, &wire.LockRequest{}),
		acquire(&wire.LockRequest{Name: strings.Repeat("n", 1<<20)}),
		&wire.ClientFrame{Frame: &wire.ClientFrame_Request{}}, &wire.ClientFrame{},
		&wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: &wire.Request{Body: &wire.Request_Release{}}}},
		&wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: &wire.Request{Body: &wire.Request_Heartbeat{}}}},
		(*wire.ClientFrame)(nil), (*wire.ServerFrame)(nil), (*wire.SnapshotRecord)(nil), &wire.SnapshotRecord{},
		claimed(), claimed(nil), claimed(&wire.LockRequest{Name: "\xff"}), claimed(&wire.LockRequest{}, &wire.LockRequest{}),
		&wire.SnapshotRecord{Record: &wire.SnapshotRecord_Claim{}}, &wire.SnapshotRecord{Record: &wire.SnapshotRecord_Lock{}},
		&wire.SnapshotRecord{Record: &wire.SnapshotRecord_Lock{Lock: &wire.LockRecord{Name: "\xff"}}},
		&wire.SnapshotRecord{Record: &wire.SnapshotRecord_Outcome{Outcome: &wire.OutcomeRecord{}}},
		&wire.ServerFrame{}, &wire.ServerFrame{Frame: &wire.ServerFrame_Response{}}, &wire.ServerFrame{Frame: &wire.ServerFrame_Push{}},
		&wire.ServerFrame{Frame: &wire.ServerFrame_Response{Response: &wire.Response{Result: &wire.Result{}, Leader: &wire.LeaderHint{}}}},
		&wire.ServerFrame{Frame: &wire.ServerFrame_Response{Response: &wire.Response{Result: &wire.Result{Message: "\xff"}}}},
		&wire.ServerFrame{Frame: &wire.ServerFrame_Response{Response: &wire.Response{Result: &wire.Result{Session: &wire.SessionState{}}}}},
	} {
		if _, ok := encoded(m); ok {
			t.Errorf("%T is not left to the library: %.200v", m, m)
		}
	}
}

func TestEntryThatCannotBeEncoded(t *testing.T) {
	good := &wire.Command{Seq: 1, Op: &wire.Command_Release{Release: &wire.Release{HoldId: 1}}}
	bad := &wire.Command{Seq: 2, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "\xff"}}}}}
	if _, err := wire.AppendEntry(nil, &wire.Entry{Commands: []*wire.Command{good, bad}}); err == nil {
		t.Error("a name that is no text was encoded")
	}
}

func FuzzEncoders(f *testing.F) {
	for _, m := range frequent() {
		f.Add(marshal(f, m.message))
	}
	for _, m := range rare() {
		f.Add(marshal(f, m))
	}
	for _, b := range odd(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { alikeEncoded(t, b) })
}

func TestFrequentMessagesAreEncodedWithoutGarbage(t *testing.T) {
	buffer := make([]byte, 0, 1<<10)
	for _, f := range frequent() {
		m, ok := f.message.(interface {
			AppendFrequent(b []byte) ([]byte, bool)
		})
		if !ok {
			continue
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = m.AppendFrequent(buffer) }); n > 0 {
			t.Errorf("%s: %v allocations", f.name, n)
		}
	}
}
