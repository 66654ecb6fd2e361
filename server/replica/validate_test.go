package replica_test

import (
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestInvalidCommandsAreNotLogged verifies that a command that is invalid in any state does not reach the
// log.
func TestInvalidCommandsAreNotLogged(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		session := c.openSession("a", time.Minute)
		long, kilobytes := strings.Repeat("x", 60_000), make([]byte, 60_000)
		hash := kilobytes[:32]
		bad := []*wire.Command{
			{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: long}}}}},
			{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "\xff"}}}}},
			{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a"}}, Value: kilobytes}}},
			{Op: &wire.Command_SetValue{SetValue: &wire.SetValue{HoldId: 1, Token: 1, Value: kilobytes}}},
			{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: kilobytes}}},
			{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: hash, Client: &wire.ClientInfo{Name: "\xff"}}}},
			{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: hash, Client: &wire.ClientInfo{Name: long}}}},
			{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{SecretHash: hash, Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: long}}}}}},
			{Op: &wire.Command_ReleaseLease{ReleaseLease: &wire.ReleaseLease{SecretHash: kilobytes}}},
			{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: 1, Token: 1, Reason: "a\nb"}}},
			{Op: &wire.Command_Revoke{Revoke: &wire.Revoke{HoldId: 1, Token: 1, Reason: long}}},
			{Op: &wire.Command_SkipDelay{SkipDelay: &wire.SkipDelay{Name: long, Reason: "r"}}},
			{Op: &wire.Command_Resize{Resize: &wire.Resize{Name: long, Limit: 1, Reason: "r"}}},
			{Op: &wire.Command_Acknowledge{Acknowledge: &wire.Acknowledge{}}, Acked: make([]uint64, 5_000)},
			{},
		}
		before := countCommands(leader)
		for i, cmd := range bad {
			cmd.SessionId, cmd.Seq = session, uint64(i+1)
			if r := leader.do(cmd); r.Status != wire.Status_INVALID_ARGUMENT && r.Status != wire.Status_RESOURCE_EXHAUSTED || r.Revision != 0 {
				t.Errorf("%T is answered %v", cmd.Op, r)
			}
		}
		if n := countCommands(leader) - before; n != 0 {
			t.Errorf("%d commands were logged", n)
		}
		// A message of a later program may carry more than this one knows.
		padded := acquireCommand(session, 99, "a", time.Second)
		padded.GetAcquire().ProtoReflect().SetUnknown(append([]byte{0xfa, 0x7f, 0xa0, 0x8d, 0x06}, make([]byte, 100_000)...))
		if r := leader.do(padded); r.Status != wire.Status_RESOURCE_EXHAUSTED {
			t.Errorf("100 KB that nobody knows: %v", r)
		}
		if r := leader.do(acquireCommand(session, 99, "a", time.Second)); r.Status != wire.Status_GRANTED {
			t.Errorf("a sound one: %v", r)
		}
	})
}

func countCommands(n *node) (count int) {
	for _, e := range n.entries() {
		count += len(e.Commands)
	}
	return count
}
