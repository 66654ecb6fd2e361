package upgrade_test

import (
	"context"
	"crypto/sha256"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// script sends commands of every kind to a node that leads, and leaves a state with rows of every kind.
type script struct {
	t    *testing.T
	node *replica.Replica
	term uint64
	seqs map[uint64]uint64
}

// do executes a command, which must succeed.
func (s *script) do(cmd *wire.Command) *wire.Result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitTimeout)
	defer cancel()
	result, err := s.node.Execute(ctx, s.term, cmd, 0)
	if result == nil || !succeeded(result) {
		s.t.Fatalf("%v: %v, %v", cmd, result, err)
	}
	return result
}

// succeeded reports whether a command had its effect. CANCELLED and TIMEOUT are how the end of a wait succeeds.
func succeeded(result *wire.Result) bool {
	return slices.Contains([]wire.Status_Code{wire.Status_OK, wire.Status_GRANTED, wire.Status_QUEUED, wire.Status_CANCELLED, wire.Status_TIMEOUT}, result.Status)
}

// ask executes a request of a session.
func (s *script) ask(session uint64, cmd *wire.Command) *wire.Result {
	s.t.Helper()
	s.seqs[session]++
	cmd.SessionId, cmd.Seq = session, s.seqs[session]
	return s.do(cmd)
}

// operate executes a command of an operator.
func (s *script) operate(cmd *wire.Command) *wire.Result {
	s.t.Helper()
	cmd.Caller = &wire.Caller{Identity: "root", Credential: "certificate root", Address: "192.0.2.1:5000"}
	return s.do(cmd)
}

// view reads the state.
func (s *script) view(read func(*fsm.Machine)) { s.node.View(read) }

// await waits until the state is as wanted.
func (s *script) await(what string, wanted func(*fsm.Machine) bool) {
	s.t.Helper()
	await(s.t, what, func() (ok bool) {
		s.view(func(m *fsm.Machine) { ok = wanted(m) })
		return ok
	})
}

func hashed(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

func described(name string) *wire.ClientInfo {
	return &wire.ClientInfo{
		Name: name, HostName: "host", BootId: "boot", Pid: 4, ProcessStartUnixMs: 5, Address: "192.0.2.7:6000",
		Labels: []*wire.Label{{Key: "team", Value: "locks"}},
	}
}

func (s *script) open(secret string) uint64 {
	s.t.Helper()
	return s.do(&wire.Command{
		Caller: &wire.Caller{Identity: "ann", Credential: "token t", Address: "192.0.2.7:6000"},
		Op:     &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: hashed(secret), TtlMs: longTTL, Client: described(secret)}},
	}).GetSession().GetSessionId()
}

// longTTL is longer than any use of the recorded state, in milliseconds.
const longTTL = 600_000

func acquire(names ...string) *wire.Acquire {
	op := &wire.Acquire{WaitForever: true}
	for _, name := range names {
		op.Locks = append(op.Locks, &wire.LockRequest{Name: name, Mode: wire.Mode_EXCLUSIVE})
	}
	return op
}

func acquiring(op *wire.Acquire) *wire.Command {
	return &wire.Command{Op: &wire.Command_Acquire{Acquire: op}}
}

// play is the whole script. halfway is called when about half of it is done.
func (s *script) play(halfway func()) {
	s.t.Helper()
	s.cluster()
	s.members()
	s.acts()
	a, b := s.open("a"), s.open("b")
	s.holds(a, b)
	s.endings(a, b)
	halfway()
	s.operators(a, b)
	s.leasesAndKeys()
	s.left(a, b)
	s.cached(a, b)
	s.access()
}

// cluster restores a backup and changes the cluster itself.
func (s *script) cluster() {
	var token uint64
	var cluster string
	s.view(func(m *fsm.Machine) { token, cluster = m.Token(), m.ClusterID() })
	s.operate(&wire.Command{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{
		ClusterId: cluster, TokenFloor: token + 1000, Settings: fsm.DefaultSettings(), Lineage: "restored", Operator: "root", Reason: "record",
		Audit:  []*wire.AuditRecord{{Id: 3, Action: wire.AuditRecord_FORCE_RELEASE, Lock: "old", Reason: "as it was", WallUnixMs: 1_700_000_000_000, Revision: 5}},
		Backup: &wire.Backup{ClusterId: "old", Revision: 9, Token: 7, Lineage: "old"},
	}}})
	s.do(&wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{Level: fsm.Level}}})
	suspended := s.do(&wire.Command{Op: &wire.Command_SuspendGrants{SuspendGrants: &wire.SuspendGrants{}}})
	s.do(&wire.Command{Op: &wire.Command_ResumeGrants{ResumeGrants: &wire.ResumeGrants{Revision: suspended.Revision}}})
	var revision uint64
	s.view(func(m *fsm.Machine) { revision = m.Revision() })
	s.do(&wire.Command{Op: &wire.Command_RecordBackup{RecordBackup: &wire.RecordBackup{Backup: &wire.SavedBackup{
		Name: "quorumlock.snap", NodeId: nodeID, UnixMs: 1_700_000_000_000, Lineage: "restored", Revision: revision, Bytes: 4096,
	}}}})
}

// members records members, drains one of them and removes the other.
func (s *script) members() {
	for _, id := range []string{"n8", "n9"} {
		member := &wire.Member{Id: id, Incarnation: "of " + id, PeerAddr: id + ":7401", ClientAddr: id + ":7400", HttpAddr: id + ":7402", Level: fsm.Level}
		s.do(&wire.Command{Op: &wire.Command_PutMember{PutMember: &wire.PutMember{Member: member}}})
	}
	s.act(&wire.RecordAct{Action: wire.AuditRecord_DRAIN_MEMBER, Member: "n8"})
	s.act(&wire.RecordAct{Action: wire.AuditRecord_DRAIN_MEMBER, Member: "n9"})
	s.act(&wire.RecordAct{Action: wire.AuditRecord_UNDRAIN_MEMBER, Member: "n9"})
	s.do(&wire.Command{Op: &wire.Command_DropMember{DropMember: &wire.DropMember{Id: "n9"}}})
}

// acts records what operators do to the cluster itself. The acts that take place outside the state machine are recorded
// before and after.
func (s *script) acts() {
	for _, act := range []*wire.RecordAct{
		{Action: wire.AuditRecord_ADD_MEMBER, Member: "n9", Address: "n9:7401"},
		{Action: wire.AuditRecord_REMOVE_MEMBER, Member: "n9"},
		{Action: wire.AuditRecord_TRANSFER_LEADERSHIP, Member: "n8"},
		{Action: wire.AuditRecord_SAVE_SNAPSHOT},
	} {
		ended := proto.CloneOf(act)
		ended.BegunRevision, ended.Outcome, ended.Message = s.act(act).Revision, wire.Status_UNAVAILABLE, "no answer"
		s.act(ended)
	}
	s.act(&wire.RecordAct{Action: wire.AuditRecord_ACKNOWLEDGE_ALARMS})
}

func (s *script) act(act *wire.RecordAct) *wire.Result {
	s.t.Helper()
	act.Operator, act.Reason, act.Ticket = "root", "record", "T-1"
	return s.operate(&wire.Command{Op: &wire.Command_RecordAct{RecordAct: act}})
}

// holds acquires, changes and releases.
func (s *script) holds(a, b uint64) {
	s.do(&wire.Command{SessionId: a, Caller: &wire.Caller{Identity: "ann"}, Op: &wire.Command_AttachSession{AttachSession: &wire.AttachSession{SecretHash: hashed("a"), Address: "192.0.2.7:6001"}}})
	held := s.ask(a, acquiring(acquire("one")))
	s.ask(a, &wire.Command{Op: &wire.Command_SetValue{SetValue: &wire.SetValue{HoldId: held.HoldId, Token: held.Token, Value: []byte("v")}}})
	s.ask(b, acquiring(acquire("one")))
	s.ask(b, &wire.Command{Op: &wire.Command_Cancel{Cancel: &wire.Cancel{AcquireSeq: s.seqs[b]}}})
	s.ask(a, &wire.Command{Op: &wire.Command_Release{Release: &wire.Release{HoldId: held.HoldId, Token: held.Token}}})

	bounded := acquire("bounded")
	bounded.MaxHoldMs = longTTL
	held = s.ask(a, acquiring(bounded))
	s.ask(a, &wire.Command{Op: &wire.Command_Extend{Extend: &wire.Extend{HoldId: held.HoldId, Token: held.Token}}})
	s.ask(a, &wire.Command{Op: &wire.Command_Downgrade{Downgrade: &wire.Downgrade{HoldId: held.HoldId, Token: held.Token}}})
	s.ask(a, &wire.Command{Op: &wire.Command_Upgrade{Upgrade: &wire.Upgrade{HoldId: held.HoldId, Token: held.Token}}})
	s.do(&wire.Command{SessionId: a, AckedBelow: s.seqs[a], Op: &wire.Command_Acknowledge{Acknowledge: &wire.Acknowledge{}}})
}

// endings lets deadlines pass, which the leader decides, and closes sessions.
func (s *script) endings(a, b uint64) {
	blocking := s.ask(a, acquiring(acquire("blocked")))
	wait := acquire("blocked")
	wait.WaitForever, wait.WaitMs = false, 1
	s.ask(b, acquiring(wait))
	s.await("the wait has timed out", func(m *fsm.Machine) bool { return m.Totals().Waiters == 0 })
	s.ask(a, &wire.Command{Op: &wire.Command_Release{Release: &wire.Release{HoldId: blocking.HoldId, Token: blocking.Token}}})

	brief := acquire("brief")
	brief.MaxHoldMs, brief.LockDelayMs = 100, 1
	locks := s.locks()
	s.ask(b, acquiring(brief))
	s.await("hold and lock-delay have ended", func(m *fsm.Machine) bool { return m.Totals().Locks == locks })

	for _, secret := range []string{"expires", "is closed", "is ended"} {
		id := s.open(secret)
		var session fsm.Session
		s.view(func(m *fsm.Machine) { session, _ = m.Session(id) })
		switch secret {
		case "expires":
			s.do(&wire.Command{Op: &wire.Command_ExpireSession{ExpireSession: &wire.ExpireSession{SessionId: id, Term: s.term, Generation: session.Generation}}})
		case "is closed":
			s.do(&wire.Command{SessionId: id, Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}})
		case "is ended":
			s.operate(&wire.Command{Op: &wire.Command_ForceClose{ForceClose: &wire.ForceClose{SessionId: id, Reason: "record", Operator: "root"}}})
		}
	}
}

func (s *script) locks() (n uint64) {
	s.view(func(m *fsm.Machine) { n = m.Totals().Locks })
	return n
}

// operators changes others' holds.
func (s *script) operators(a, b uint64) {
	forced := s.ask(a, acquiring(acquire("forced")))
	s.operate(&wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: forced.HoldId, Token: forced.Token, Reason: "record", Operator: "root"}}})
	revoked := s.ask(a, acquiring(acquire("revoked")))
	s.operate(&wire.Command{Op: &wire.Command_Revoke{Revoke: &wire.Revoke{HoldId: revoked.HoldId, Token: revoked.Token, Reason: "record", GraceMs: longTTL, Operator: "root"}}})
	s.delayed(b, "skipped")
	s.operate(&wire.Command{Op: &wire.Command_SkipDelay{SkipDelay: &wire.SkipDelay{Name: "skipped", Reason: "record", Operator: "root"}}})
	s.ask(a, acquiring(&wire.Acquire{Locks: []*wire.LockRequest{{Name: "permits", Permits: 2, Limit: 3}}}))
	s.operate(&wire.Command{Op: &wire.Command_Resize{Resize: &wire.Resize{Name: "permits", Limit: 5, Reason: "record", Operator: "root"}}})
}

// delayed leaves a lock under a lock-delay.
func (s *script) delayed(session uint64, name string) {
	op := acquire(name)
	op.LockDelayMs = 60_000
	held := s.ask(session, acquiring(op))
	s.operate(&wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: held.HoldId, Token: held.Token, Reason: "record", Operator: "root"}}})
}

func (s *script) leasesAndKeys() {
	lease := func(secret, name string) *wire.Result {
		return s.do(&wire.Command{
			Caller: &wire.Caller{Identity: "ben"},
			Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{
				SecretHash: hashed(secret), TtlMs: longTTL, Client: described(secret), Acquire: acquire(name),
			}},
		})
	}
	kept, released := lease("kept", "lease/kept"), lease("released", "lease/released")
	s.do(&wire.Command{Caller: &wire.Caller{Identity: "ben"}, Op: &wire.Command_ExtendLease{ExtendLease: &wire.ExtendLease{SecretHash: hashed("kept"), HoldId: kept.HoldId}}})
	s.do(&wire.Command{Caller: &wire.Caller{Identity: "ben"}, Op: &wire.Command_ConfirmLease{ConfirmLease: &wire.ConfirmLease{SecretHash: hashed("kept"), HoldId: kept.HoldId}}})
	s.do(&wire.Command{Caller: &wire.Caller{Identity: "ben"}, Op: &wire.Command_ReleaseLease{ReleaseLease: &wire.ReleaseLease{SecretHash: hashed("released"), HoldId: released.HoldId}}})
	key := func(seq uint64, action wire.ChangeKeys_Action, names ...string) {
		s.do(&wire.Command{Caller: &wire.Caller{Identity: "cid"}, Op: &wire.Command_ChangeKeys{ChangeKeys: &wire.ChangeKeys{
			Action: action, Names: names, Value: []byte("owner"), TtlMs: longTTL, Client: described("redis"), NodeId: nodeID, Boot: 1, Seq: seq, AckedBelow: 1,
		}}})
	}
	key(1, wire.ChangeKeys_ACQUIRE, "key/1", "key/2")
	key(2, wire.ChangeKeys_EXTEND, "key/1")
	key(3, wire.ChangeKeys_RELEASE, "key/2")
	remaining := &wire.RecordRemaining{Term: s.term}
	s.view(func(m *fsm.Machine) {
		for _, r := range snapshotRecords(s.t, snapshotOf(s.t, m)) {
			if session := r.GetSession(); len(session.GetOwnerValue()) > 0 {
				remaining.Keys = append(remaining.Keys, &wire.RecordRemaining_Remaining{SessionId: session.Id, Generation: session.Generation, RemainingMs: longTTL / 2})
			}
		}
	})
	s.do(&wire.Command{Op: &wire.Command_RecordRemaining{RecordRemaining: remaining}})
}

// left leaves holds and waits of every kind.
func (s *script) left(a, b uint64) {
	valued := acquire("held")
	valued.Value, valued.Notify, valued.Reentrant = []byte("10.0.0.7:80"), true, true
	s.ask(a, acquiring(valued))
	s.ask(a, acquiring(valued))
	s.ask(b, acquiring(acquire("held", "also")))
	shared := func() *wire.Command {
		return acquiring(&wire.Acquire{Locks: []*wire.LockRequest{{Name: "shared", Mode: wire.Mode_SHARED}}})
	}
	reader := s.ask(a, shared())
	s.ask(s.open("c"), shared())
	s.ask(a, &wire.Command{Op: &wire.Command_Upgrade{Upgrade: &wire.Upgrade{HoldId: reader.HoldId, Token: reader.Token, WaitForever: true}}})
	unfair := acquire("unfair")
	unfair.Order = wire.Order_UNFAIR
	s.ask(b, acquiring(unfair))
	s.delayed(b, "delayed")
}

// cached leaves a cached hold that nobody waits for, one that was recalled, and a wait for one.
func (s *script) cached(a, b uint64) {
	acquiringCached := func(name string, tokens uint32) *wire.Command {
		op := acquire(name)
		op.MaxHoldMs = longTTL
		return &wire.Command{Op: &wire.Command_AcquireCached{AcquireCached: &wire.AcquireCached{Acquire: op, Tokens: tokens, IdleMs: longTTL}}}
	}
	s.ask(a, acquiringCached("cached/idle", 16_384))
	s.ask(a, acquiringCached("cached/recalled", 64))
	s.ask(b, acquiringCached("cached/recalled", 1))
}

// access sets a policy and tokens: from here on, rights count.
func (s *script) access() {
	s.operate(&wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Reason: "record", Operator: "root", Policy: &wire.Policy{
		Roles: []*wire.Role{{Name: "team", Cluster: []wire.Verb{wire.Verb_AUDIT}, Locks: []*wire.LockRule{
			{Prefix: "/", Verbs: []wire.Verb{wire.Verb_READ, wire.Verb_LOCK}}, {Name: "held", Verbs: []wire.Verb{wire.Verb_OPERATE}},
		}}},
		Bindings: []*wire.Binding{{Identity: "root", Roles: []string{"admin"}}, {Identity: "ann", Roles: []string{"team"}}, {Identity: "be*", Roles: []string{"user"}}},
		Quotas:   []*wire.Quota{{Identity: "ann", Sessions: 50, Claims: 500}, {Prefix: "key/", Claims: 100}},
	}}}})
	for _, name := range []string{"kept", "withdrawn"} {
		s.operate(&wire.Command{Op: &wire.Command_CreateToken{CreateToken: &wire.CreateToken{Sha256: hashed(name), Name: "ann", Reason: "record", Operator: "root"}}})
	}
	var id string
	s.view(func(m *fsm.Machine) {
		for _, r := range snapshotRecords(s.t, snapshotOf(s.t, m)) {
			if r.GetToken() != nil {
				id = r.GetToken().GetInfo().GetId()
			}
		}
	})
	s.operate(&wire.Command{Op: &wire.Command_RevokeToken{RevokeToken: &wire.RevokeToken{TokenId: id, Reason: "record", Operator: "root"}}})
}

const waitTimeout = 15 * time.Second

// await waits for a condition.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(waitTimeout)
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not within %v: %s", waitTimeout, what)
		}
	}
}
