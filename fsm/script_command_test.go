package fsm

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func (s *script) command(a args) *wire.Command {
	switch a.who {
	case "cluster":
		return s.clusterCommand(a)
	case "leader":
		return s.leaderCommand(a)
	case "operator":
		return s.operatorCommand(a)
	}
	if keyActions[a.verb] != 0 {
		return s.keysCommand(a)
	}
	return s.sessionCommand(a)
}

func (s *script) clusterCommand(a args) *wire.Command {
	if a.verb != "bootstrap" {
		s.t.Fatalf("cluster: %s?", a.verb)
	}
	var members []*wire.Member
	for _, id := range strings.FieldsFunc(a.pairs["members"], func(r rune) bool { return r == ',' }) {
		members = append(members, &wire.Member{Id: id})
	}
	return bootCommand(&wire.Bootstrap{ClusterId: "test", Members: members, TokenFloor: s.number(a, "floor", 0), Settings: &wire.Settings{
		MaxSessions:         s.number(a, "max_sessions", 0),
		MaxLocks:            s.number(a, "max_locks", 0),
		MaxWaitersPerLock:   s.number(a, "max_waiters_per_lock", 0),
		MaxClaimsPerSession: s.number(a, "max_claims_per_session", 0),
		MaxWindow:           s.number(a, "max_window", 0),
		MaxValueBytes:       uint32(s.number(a, "max_value_bytes", 0)),
		MaxCachedIdleMs:     uint32(s.number(a, "max_cached_idle_ms", 0)),
		NoCachedHolds:       s.number(a, "no_cached_holds", 0) > 0,
	}})
}

// leaderCommand returns a command about a session, or about a session's wait for a lock. Terms and
// generations are the current ones unless the line gives others.
func (s *script) leaderCommand(a args) *wire.Command {
	id := s.ids[a.arg(0)]
	term := s.number(a, "term", s.m.Term())
	switch a.verb {
	case "begin":
		return &wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{
			Term: term, LeaderId: a.arg(0), ClockUnixMs: s.number(a, "clock", 0), MedianUnixMs: s.number(a, "median", 0),
		}}}
	case "remaining":
		return s.remainingCommand(a)
	case "raise":
		return &wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{Level: s.short(a, "level")}}}
	case "report":
		return &wire.Command{Op: &wire.Command_PutMember{PutMember: &wire.PutMember{Member: &wire.Member{Id: a.arg(0), Level: s.short(a, "level")}}}}
	case "drop":
		return &wire.Command{Op: &wire.Command_DropMember{DropMember: &wire.DropMember{Id: a.arg(0)}}}
	case "backup":
		return &wire.Command{Op: &wire.Command_RecordBackup{RecordBackup: &wire.RecordBackup{Backup: &wire.SavedBackup{
			Name: a.arg(0), NodeId: "n1", Lineage: cmp.Or(a.pairs["lineage"], s.m.Lineage()), Revision: s.number(a, "revision", s.m.Revision()),
		}}}}
	case "suspend":
		return &wire.Command{Op: &wire.Command_SuspendGrants{SuspendGrants: &wire.SuspendGrants{}}}
	case "resume":
		return &wire.Command{Op: &wire.Command_ResumeGrants{ResumeGrants: &wire.ResumeGrants{Revision: s.number(a, "revision", s.m.GrantsSuspended())}}}
	case "expire":
		live, _ := s.m.Session(id)
		return &wire.Command{Op: &wire.Command_ExpireSession{ExpireSession: &wire.ExpireSession{
			SessionId: id, Term: term, Generation: s.number(a, "generation", live.Generation),
		}}}
	}
	hold := s.number(a, "hold", s.holds[a.arg(0)+" "+a.arg(1)].GetHoldId())
	c, ok := s.m.claims.get(hold)
	if !ok {
		c = &claim{}
	}
	switch a.verb {
	case "timeout":
		return &wire.Command{Op: &wire.Command_TimeoutWait{TimeoutWait: &wire.TimeoutWait{
			WaitId: s.number(a, "wait", hold), Term: term, Generation: s.number(a, "generation", max(1, c.generation())),
		}}}
	case "expire-hold":
		return &wire.Command{Op: &wire.Command_ExpireHold{ExpireHold: &wire.ExpireHold{
			HoldId: hold, Term: term, Generation: s.number(a, "generation", c.options().holdGeneration),
		}}}
	case "expire-grace":
		return &wire.Command{Op: &wire.Command_ExpireHold{ExpireHold: &wire.ExpireHold{
			HoldId: hold, Term: term, Generation: s.number(a, "generation", c.options().graceGeneration), Grace: true,
		}}}
	case "end-delay":
		return &wire.Command{Op: &wire.Command_EndDelay{EndDelay: &wire.EndDelay{
			HoldId: hold, Term: term, Generation: s.number(a, "generation", c.options().delayGeneration),
		}}}
	}
	s.t.Fatalf("leader: %s?", a.verb)
	return nil
}

// operatorCommand returns a command about a session's hold on a lock, or about a lock.
func (s *script) operatorCommand(a args) *wire.Command {
	last, reason := s.holds[a.arg(0)+" "+a.arg(1)], a.pairs["reason"]
	hold, token := s.number(a, "hold", last.GetHoldId()), s.number(a, "token", last.GetToken())
	switch a.verb {
	case "force":
		return &wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: hold, Token: token, Reason: reason, Operator: "op"}}}
	case "revoke":
		return &wire.Command{Op: &wire.Command_Revoke{Revoke: &wire.Revoke{HoldId: hold, Token: token, Reason: reason, GraceMs: s.short(a, "grace"), Operator: "op"}}}
	case "skip":
		return &wire.Command{Op: &wire.Command_SkipDelay{SkipDelay: &wire.SkipDelay{Name: a.arg(0), HoldId: s.number(a, "hold", 0), Reason: reason, Operator: "op"}}}
	case "resize":
		return &wire.Command{Op: &wire.Command_Resize{Resize: &wire.Resize{Name: a.arg(0), Limit: s.number(a, "limit", 0), Reason: reason, Operator: "op"}}}
	case "close-all":
		return &wire.Command{Op: &wire.Command_ForceClose{ForceClose: &wire.ForceClose{Identity: a.arg(0), Reason: reason, Operator: "op"}}}
	case "close":
		return &wire.Command{Op: &wire.Command_ForceClose{ForceClose: &wire.ForceClose{SessionId: s.ids[a.arg(0)], Reason: reason, Operator: "op"}}}
	case "restore":
		return &wire.Command{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{TokenFloor: s.number(a, "floor", 0), Lineage: a.arg(0), Reason: reason, Operator: "op",
			ClusterId: a.pairs["cluster"], ClockUnixMs: s.number(a, "clock", 0), Backup: &wire.Backup{ClusterId: "lost", Token: s.number(a, "token", 0)},
			Policy: s.policy(a), Tokens: s.tokens(a)}}}
	case "record":
		return &wire.Command{Op: &wire.Command_RecordAct{RecordAct: &wire.RecordAct{Action: wire.AuditRecord_Action(wire.AuditRecord_Action_value[a.arg(0)]), Member: a.pairs["member"], Reason: reason, Operator: "op"}}}
	}
	return s.accessCommand(a)
}

// leaseCommand returns a command from a client without a session: the name is the secret.
func (s *script) leaseCommand(a args) *wire.Command {
	hold := s.number(a, "hold", s.holds[a.who+" "+a.first()].GetHoldId())
	switch a.verb {
	case "lease":
		return &wire.Command{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{
			SecretHash: secretHash(a.who), TtlMs: s.short(a, "ttl"), Client: &wire.ClientInfo{Name: a.who}, Acquire: s.acquire(a),
			OwnerValue: []byte(a.pairs["owner_value"]),
		}}}
	case "confirm-lease":
		return &wire.Command{Op: &wire.Command_ConfirmLease{ConfirmLease: &wire.ConfirmLease{SecretHash: secretHash(a.who), HoldId: hold}}}
	case "extend-lease":
		return &wire.Command{Op: &wire.Command_ExtendLease{ExtendLease: &wire.ExtendLease{SecretHash: secretHash(a.who), HoldId: hold, TtlMs: s.short(a, "ttl")}}}
	}
	return &wire.Command{Op: &wire.Command_ReleaseLease{ReleaseLease: &wire.ReleaseLease{SecretHash: secretHash(a.who), HoldId: s.number(a, "hold", 0)}}}
}

func (s *script) sessionCommand(a args) *wire.Command {
	cmd := &wire.Command{SessionId: s.ids[a.who], AckedBelow: s.number(a, "below", 0)}
	for text := range strings.SplitSeq(a.pairs["acked"], ",") {
		if seq, err := strconv.ParseUint(text, 10, 64); err == nil {
			cmd.Acked = append(cmd.Acked, seq)
		}
	}
	switch a.verb {
	case "lease", "confirm-lease", "extend-lease", "release-lease":
		return s.leaseCommand(a)
	case "open":
		cmd.SessionId = 0
		cmd.Op = &wire.Command_OpenSession{OpenSession: &wire.OpenSession{
			SecretHash: secretHash(a.who), TtlMs: uint32(s.number(a, "ttl", 0)), Client: &wire.ClientInfo{Name: a.who},
		}}
	case "attach":
		secret := a.who
		if wrong, ok := a.pairs["secret"]; ok {
			secret = wrong
		}
		cmd.Op = &wire.Command_AttachSession{AttachSession: &wire.AttachSession{SecretHash: secretHash(secret), Address: "127.0.0.1:1"}}
	case "close":
		cmd.Op = &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}
	case "acknowledge":
		cmd.Op = &wire.Command_Acknowledge{Acknowledge: &wire.Acknowledge{}}
	default:
		s.seqs[a.who]++
		cmd.Seq = s.number(a, "seq", s.seqs[a.who])
		s.seqs[a.who] = max(s.seqs[a.who]-1, cmd.Seq)
		s.request(a, cmd)
	}
	return cmd
}

// request fills in a command that is remembered. Holds and tokens are the last ones that the session got
// for that lock, unless the line gives others.
func (s *script) request(a args, cmd *wire.Command) {
	last := s.holds[a.who+" "+a.first()]
	hold, token := s.number(a, "hold", last.GetHoldId()), s.number(a, "token", last.GetToken())
	switch a.verb {
	case "acquire":
		cmd.Op = &wire.Command_Acquire{Acquire: s.acquire(a)}
	case "acquire-cached":
		cmd.Op = &wire.Command_AcquireCached{AcquireCached: &wire.AcquireCached{
			Acquire: s.acquire(a), Tokens: uint32(s.number(a, "tokens", 10)), IdleMs: uint32(s.number(a, "idle", 1_000)),
		}}
	case "release":
		cmd.Op = &wire.Command_Release{Release: &wire.Release{HoldId: hold, Token: token}}
	case "set":
		cmd.Op = &wire.Command_SetValue{SetValue: &wire.SetValue{HoldId: hold, Token: token, Value: []byte(a.pairs["value"])}}
	case "cancel":
		cmd.Op = &wire.Command_Cancel{Cancel: &wire.Cancel{AcquireSeq: s.number(a, "request", 0)}}
	case "upgrade":
		cmd.Op = &wire.Command_Upgrade{Upgrade: &wire.Upgrade{
			HoldId: hold, Token: token, WaitMs: s.short(a, "wait"), WaitForever: a.has("forever"), AllowDeadlock: a.has("allow"),
		}}
	case "downgrade":
		cmd.Op = &wire.Command_Downgrade{Downgrade: &wire.Downgrade{HoldId: hold, Token: token}}
	case "extend":
		cmd.Op = &wire.Command_Extend{Extend: &wire.Extend{HoldId: hold, Token: token, MaxHoldMs: s.short(a, "max_hold")}}
	default:
		s.t.Fatalf("%s: %s?", a.who, a.verb)
	}
}

// acquire parses locks as in "a,b@shared,c@2/5": two of five permits of c.
func (s *script) acquire(a args) *wire.Acquire {
	op := &wire.Acquire{
		Owner:         s.number(a, "owner", 0),
		Value:         []byte(a.pairs["value"]),
		WaitMs:        s.short(a, "wait"),
		WaitForever:   a.has("forever"),
		Reentrant:     a.has("reentrant"),
		Notify:        a.has("notify"),
		AllowDeadlock: a.has("allow"),
		MaxHoldMs:     s.short(a, "max_hold"),
		LockDelayMs:   s.short(a, "delay"),
	}
	if a.has("unfair") {
		op.Order = wire.Order_UNFAIR
	}
	for text := range strings.SplitSeq(a.arg(0), ",") {
		name, mode, _ := strings.Cut(text, "@")
		request := &wire.LockRequest{Name: name}
		if permits, limit, ok := strings.Cut(mode, "/"); ok {
			request.Permits, _ = strconv.ParseUint(permits, 10, 64)
			request.Limit, _ = strconv.ParseUint(limit, 10, 64)
		} else {
			request.Mode = wire.Mode(wire.Mode_value[strings.ToUpper(mode)])
		}
		op.Locks = append(op.Locks, request)
	}
	return op
}
