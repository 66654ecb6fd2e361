package access_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func by(who string) *wire.Caller { return &wire.Caller{Identity: who} }

func acquireOf(lock string) *wire.Acquire {
	return &wire.Acquire{Locks: []*wire.LockRequest{{Name: lock}}}
}

func leaseCommand(who string, secret []byte, lock string) *wire.Command {
	return &wire.Command{Caller: by(who), Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{SecretHash: secret, Acquire: acquireOf(lock)}}}
}

func openCommand(who string, secret []byte) *wire.Command {
	return &wire.Command{Caller: by(who), Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: secret}}}
}

// keysCommand is that of a Redis port, with the number of the port.
func keysCommand(who string, seq uint64, lock string) *wire.Command {
	return &wire.Command{Caller: by(who), Op: &wire.Command_ChangeKeys{ChangeKeys: &wire.ChangeKeys{
		Action: wire.ChangeKeys_ACQUIRE, Names: []string{lock}, Value: []byte("v"), TtlMs: 60_000, NodeId: "n1", Boot: 1, Seq: seq, AckedBelow: min(seq, 2),
	}}}
}

// TestNumbersAtApply verifies that, when a command is applied, only the retry of an executed request is answered without
// the right, and that whatever else has its number or secret is checked before it is refused.
func TestNumbersAtApply(t *testing.T) {
	c := rights.New(t)
	secret := []byte("0123456789abcdef")
	hash, _ := wire.HashSecret([]byte(rights.Secret))
	leased, _ := wire.HashSecret(secret)
	framed := func(seq uint64, lock string) *wire.Command {
		return &wire.Command{SessionId: c.Session, Seq: seq, Op: &wire.Command_Acquire{Acquire: acquireOf(lock)}}
	}
	release := func(seq, below uint64) *wire.Command {
		return &wire.Command{SessionId: c.Session, Seq: seq, AckedBelow: below, Op: &wire.Command_Release{Release: &wire.Release{HoldId: 1}}}
	}
	c.Must(t, &wire.Command{Op: &wire.Command_PutMember{PutMember: &wire.PutMember{Member: &wire.Member{Id: "n1", Incarnation: "i", PeerAddr: "a:1"}}}})
	c.Must(t, leaseCommand("user", leased[:], "team/leased"))
	c.Must(t, keysCommand("user", 2, "team/key"))
	if got := c.Apply(t, release(2, 0)); got.GetStatus() != wire.Status_NOT_HELD {
		t.Fatalf("a release: %v", got)
	}
	check := func(when string, cmd *wire.Command, want wire.Status_Code) {
		t.Helper()
		if got := c.Apply(t, proto.CloneOf(cmd)); got.GetStatus() != want {
			t.Errorf("%s, %v: %v, want %v", when, cmd, got, want)
		}
	}
	const granted, denied, invalid, stale = wire.Status_GRANTED, wire.Status_PERMISSION_DENIED, wire.Status_INVALID_ARGUMENT, wire.Status_STALE
	retries := func(when string) {
		t.Helper()
		check(when, framed(1, rights.Lock), granted)
		check(when, leaseCommand("user", leased[:], "team/leased"), granted)
		check(when, openCommand("user", hash[:]), wire.Status_OK)
		check(when, keysCommand("user", 2, "team/key"), granted)
	}
	others := func(when string, want wire.Status_Code) {
		t.Helper()
		check(when, framed(1, "team/b"), want)
		check(when, framed(2, rights.Lock), want)
		check(when, leaseCommand("user", leased[:], "team/b"), want)
		check(when, leaseCommand("user", hash[:], "team/b"), want)
		check(when, openCommand("user", leased[:]), want)
		check(when, keysCommand("user", 2, "team/b"), want)
	}
	retries("with the right")
	others("with the right", invalid)
	check("another identity", keysCommand("admin", 2, "team/key"), invalid)
	check("another identity", leaseCommand("admin", leased[:], "team/leased"), denied)
	check("another identity", openCommand("admin", hash[:]), denied)

	policy := rights.Policy()
	policy.Bindings[2].Roles = []string{"reader"} // of user
	_, revision := c.Access().Policy()
	c.Must(t, &wire.Command{Caller: by("admin"), Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: policy, ExpectedRevision: revision, Reason: "test"}}})
	retries("without the right")
	others("without the right", denied)
	check("without the right", keysCommand("user", 1, "team/key"), denied)
	check("giving up needs no right", release(1, 0), invalid)
	c.Apply(t, release(3, 3))
	check("below the mark", framed(2, rights.Lock), denied)
	check("below the mark", release(2, 0), stale)
}
