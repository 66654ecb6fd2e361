package wire_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// frequent returns the messages that make up nearly all traffic, and most of a snapshot.
func frequent() []struct {
	name    string
	message proto.Message
} {
	request := func(body *wire.Request) proto.Message {
		body.Id, body.SessionId = 70_001, 4_711
		return &wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: body}}
	}
	acquire := &wire.Acquire{Locks: []*wire.LockRequest{{Name: "orders/4242", Mode: wire.Mode_EXCLUSIVE}}, Owner: 70_001, WaitForever: true}
	release := &wire.Release{HoldId: 5_000_017, Token: 391_484_405_014_593_763}
	grant := &wire.Result{Status: wire.Status_GRANTED, Seq: 35_001, Revision: 5_000_017, HoldId: 5_000_017, Token: release.Token, Count: 1}
	locked := &wire.LockRecord{Name: "orders/4242", Id: 12_001}
	held := &wire.ClaimRecord{
		Id: 5_000_017, SessionId: 4_711, Owner: 70_001, Seq: 35_001, Locks: acquire.Locks, WaitForever: true, Generation: 1,
		QueuedUnixMs: 1_700_000_000_000, Token: release.Token, GrantedRevision: 5_000_017, GrantedUnixMs: 1_700_000_000_000,
	}
	return []struct {
		name    string
		message proto.Message
	}{
		{"acquire", request(&wire.Request{Seq: 35_001, AckedBelow: 35_001, Body: &wire.Request_Acquire{Acquire: acquire}})},
		{"release", request(&wire.Request{Seq: 35_002, AckedBelow: 35_002, Acked: []uint64{35_001}, Body: &wire.Request_Release{Release: release}})},
		{"heartbeat", request(&wire.Request{Body: &wire.Request_Heartbeat{Heartbeat: &wire.Heartbeat{}}})},
		{"grant", &wire.ServerFrame{Frame: &wire.ServerFrame_Response{Response: &wire.Response{Id: 70_001, Result: grant, RemainingTtlMs: 9_998}}}},
		{"hand-over", &wire.ServerFrame{Frame: &wire.ServerFrame_Push{Push: &wire.Push{SessionId: 4_711, Body: &wire.Push_Outcome{Outcome: grant}}}}},
		{"entry-1", entryOf(1, acquire, release)},
		{"entry-256", entryOf(256, acquire, release)},
		{"entry-keys", keysEntry()},
		{"lock-record", &wire.SnapshotRecord{Record: &wire.SnapshotRecord_Lock{Lock: locked}}},
		{"claim-record", &wire.SnapshotRecord{Record: &wire.SnapshotRecord_Claim{Claim: held}}},
	}
}

// entryOf returns a log entry with so many commands, acquires and releases in turn.
func entryOf(n int, acquire *wire.Acquire, release *wire.Release) *wire.Entry {
	entry := &wire.Entry{Level: 1, WallUnixMs: 1_700_000_000_000}
	for i := range uint64(n) {
		cmd := &wire.Command{SessionId: 4_711 + i, Seq: 35_001, AckedBelow: 35_001, Op: &wire.Command_Acquire{Acquire: acquire}}
		if i%2 == 1 {
			cmd.Op = &wire.Command_Release{Release: release}
		}
		entry.Commands = append(entry.Commands, cmd)
	}
	return entry
}

// keysEntry returns a log entry with two changes of keys.
func keysEntry() *wire.Entry {
	caller := &wire.Caller{Identity: "billing", Credential: "token 0b840c81b440", Address: "127.0.0.1:41234"}
	client := &wire.ClientInfo{Name: "worker-7", Labels: []*wire.Label{{Key: "node", Value: "n1"}}, Address: caller.Address}
	change := func(seq uint64, op *wire.ChangeKeys) *wire.Command {
		op.Names, op.Value, op.NodeId, op.Boot, op.Seq, op.AckedBelow = []string{"orders/4242"}, []byte("35d5a2b7"), "n1", 1<<40, seq, seq-5
		return &wire.Command{Caller: caller, Op: &wire.Command_ChangeKeys{ChangeKeys: op}}
	}
	return &wire.Entry{Level: 1, WallUnixMs: 1_700_000_000_000, Commands: []*wire.Command{
		change(35_001, &wire.ChangeKeys{Action: wire.ChangeKeys_ACQUIRE, TtlMs: 30_000, Client: client}),
		change(35_002, &wire.ChangeKeys{Action: wire.ChangeKeys_RELEASE}),
	}}
}

func BenchmarkEncode(b *testing.B) {
	for _, f := range frequent() {
		b.Run(f.name, func(b *testing.B) {
			var buffer []byte
			var err error
			b.ReportAllocs()
			own, _ := f.message.(interface {
				AppendFrequent(b []byte) ([]byte, bool)
			})
			entry, _ := f.message.(*wire.Entry)
			for b.Loop() {
				if own != nil {
					buffer, _ = own.AppendFrequent(buffer[:0])
				} else if buffer, err = wire.AppendEntry(buffer[:0], entry); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(buffer)))
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, f := range frequent() {
		for _, d := range decoders() {
			if proto.MessageName(d.empty) != proto.MessageName(f.message) {
				continue
			}
			b.Run(f.name, func(b *testing.B) {
				data := marshal(b, f.message)
				b.ReportAllocs()
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					if _, err := d.decode(data); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
