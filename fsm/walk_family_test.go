package fsm

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/test/model"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// lockRequest requests a lock, mostly as the kind that it is.
func (w *walker) lockRequest(i int, op *wire.Acquire) *wire.LockRequest {
	l := &wire.LockRequest{Name: walkNames[i]}
	kind := w.kinds[i]
	if live := w.d.Locks[l.Name]; live != nil {
		kind = max(live.Limit, 1)
		if live.Order == wire.Order_UNFAIR {
			kind = 0
		}
	}
	if w.one(25) {
		kind = uint64(w.roll(4))
	}
	switch kind {
	case 0:
		op.Order = wire.Order_UNFAIR
		l.Mode = wire.Mode(w.roll(2))
	case 1:
		l.Mode = wire.Mode(w.roll(2))
		if w.roll(4) < w.readers {
			l.Mode = wire.Mode_SHARED
		}
	default:
		l.Limit, l.Permits = kind, uint64(w.roll(int(kind)+1))
	}
	return l
}

func (w *walker) acquire(session uint64) *wire.Acquire {
	op := &wire.Acquire{
		Owner:         uint64(w.roll(w.owners)),
		WaitMs:        uint32(w.roll(3) * 500),
		WaitForever:   w.one(3),
		Value:         w.value(),
		Notify:        w.one(3),
		AllowDeadlock: w.one(8),
		Order:         wire.Order(w.roll(2)),
	}
	first := w.lock()
	for range w.owners { // an owner key without a claim on it yet
		if w.d.Mine(session, op.Owner, walkNames[first]) != nil && !w.one(5) {
			op.Owner = (op.Owner + 1) % uint64(w.owners)
		}
	}
	op.Locks = append(op.Locks, w.lockRequest(first, op))
	if w.one(4) && op.Order != wire.Order_UNFAIR {
		for i := range w.names {
			if i != first && w.one(2) {
				more := &wire.Acquire{}
				if l := w.lockRequest(i, more); more.Order != wire.Order_UNFAIR {
					op.Locks = append(op.Locks, l)
				}
			}
		}
	}
	if w.one(3) {
		op.MaxHoldMs = uint32(100 + w.roll(2)*150)
	}
	if w.one(3) {
		op.LockDelayMs = uint32(1 + w.roll(2)*1_000)
	}
	if w.one(12) {
		w.again(session, op)
	}
	w.spoil(op)
	return op
}

// again requests what the session already has.
func (w *walker) again(session uint64, op *wire.Acquire) {
	c := w.hold(session, func(c *model.Claim) bool { return !c.Is(wire.Mode_PERMITS) })
	l := c.Locks[w.roll(len(c.Locks))]
	op.Owner, op.Reentrant = c.Owner, !w.one(5)
	op.Locks = []*wire.LockRequest{{Name: l.Name, Mode: wire.Mode(min(2, w.roll(4)))}}
	op.Order = wire.Order_ORDER_UNSPECIFIED
	if known := w.d.Locks[l.Name]; known != nil {
		op.Order = known.Order
	}
	if op.Order == wire.Order_UNFAIR {
		op.Locks[0].Mode = wire.Mode_EXCLUSIVE
	}
}

// spoil sometimes makes an acquire invalid.
func (w *walker) spoil(op *wire.Acquire) {
	first := op.Locks[0]
	switch w.roll(150) {
	case 0:
		op.Locks = nil
	case 1:
		op.Locks = append(op.Locks, first)
	case 2:
		first.Name = "a//b"
	case 3:
		first.Mode = 99
	case 4:
		first.Mode = wire.Mode_PERMITS
	case 5:
		first.Permits = 7
	case 6:
		op.Order = wire.Order_UNFAIR
	case 7:
		op.Order = 3
	case 8:
		op.Reentrant = true
	case 9:
		op.MaxHoldMs = 99
	case 10:
		op.LockDelayMs = 60_001
	case 11:
		first.Limit = 1<<31 + uint64(w.roll(2))
	}
}

func (w *walker) upgrade(c *model.Claim) *wire.Upgrade {
	return &wire.Upgrade{
		HoldId: c.ID, Token: w.token(c), WaitMs: uint32(w.roll(3) * 500),
		WaitForever: w.one(3), AllowDeadlock: w.one(8),
	}
}

// fatal returns a shared hold whose upgrade would close a cycle, or nil: another owner that shares the
// lock waits for something else that the hold's owner holds.
func (w *walker) fatal() *model.Claim {
	for _, c := range w.d.Claims {
		if !c.Holds() || !reads(c) || c.Upgrading() {
			continue
		}
		for _, o := range w.d.Claims {
			if !o.Queued() || w.d.Mine(o.Session, o.Owner, c.Locks[0].Name) == nil {
				continue
			}
			for _, l := range o.Locks {
				if besides := w.d.Mine(c.Session, c.Owner, l.Name); besides != nil && besides != c && besides.Holds() {
					return c
				}
			}
		}
	}
	return nil
}

func (w *walker) client() *wire.ClientInfo {
	client := &wire.ClientInfo{Name: fmt.Sprint("walker ", w.secrets)}
	if w.labelled && !w.one(3) {
		for range 1_930 + w.roll(60) {
			client.Labels = append(client.Labels, &wire.Label{})
		}
	}
	return client
}

// lease returns one of the commands of leases.
func (w *walker) lease() *wire.Command {
	c := w.some(w.ofLease)
	hash := w.hash(w.roll(w.secrets + 1))
	if s := w.d.Session(c.Session); s != nil && (s.Hash != "" || w.one(8)) {
		hash = []byte(s.Hash)
	}
	ttl := uint32(w.roll(3) * 7_000)
	switch {
	case w.one(10):
		ttl = 1
	case w.ofKey(c) && w.one(3):
		ttl = 86_400_001
	}
	pick := w.roll(7)
	if w.keyed && !w.any(w.ofLease) && !w.one(4) {
		pick = 6
	}
	switch pick {
	case 1:
		return &wire.Command{Op: &wire.Command_ConfirmLease{ConfirmLease: &wire.ConfirmLease{SecretHash: hash, HoldId: w.about(c.ID)}}}
	case 0:
		return &wire.Command{Op: &wire.Command_ExtendLease{ExtendLease: &wire.ExtendLease{SecretHash: hash, HoldId: w.about(c.ID), TtlMs: ttl}}}
	case 2, 3:
		id := w.about(c.ID)
		if w.one(3) {
			id = 0
		}
		return &wire.Command{Op: &wire.Command_ReleaseLease{ReleaseLease: &wire.ReleaseLease{SecretHash: hash, HoldId: id}}}
	}
	op := &wire.OpenLease{SecretHash: hash, TtlMs: ttl, Acquire: w.acquire(0)}
	if w.keyed && w.one(2) {
		w.keyLease(op)
	}
	switch w.roll(16) {
	case 0, 1, 2:
	case 3:
		op.SecretHash = hash[min(1, len(hash)):]
	case 4:
		op.Client = &wire.ClientInfo{Name: strings.Repeat("x", 70)}
	case 5, 6:
		if first := w.leases[string(hash)]; first != nil {
			op = proto.CloneOf(first) // a retry
		}
	default:
		op.SecretHash, op.Client = w.hash(w.secrets), w.client()
		w.secrets++
	}
	if w.leases[string(op.SecretHash)] == nil {
		w.leases[string(op.SecretHash)] = proto.CloneOf(op)
	}
	return &wire.Command{Op: &wire.Command_OpenLease{OpenLease: op}}
}

func (w *walker) endDelay() *wire.Command {
	c := w.some((*model.Claim).Delays)
	if w.one(3) {
		op := &wire.SkipDelay{Name: c.Locks[w.roll(len(c.Locks))].Name, Reason: w.reason(), Operator: w.who(), Ticket: "T-1"}
		if w.one(2) {
			op.HoldId = w.about(c.ID)
		}
		return &wire.Command{Op: &wire.Command_SkipDelay{SkipDelay: op}}
	}
	return &wire.Command{Op: &wire.Command_EndDelay{EndDelay: &wire.EndDelay{HoldId: c.ID, Term: w.about(w.d.Term), Generation: w.about(1)}}}
}

func (w *walker) expireHold() *wire.Command {
	c := w.some(bounded)
	op := &wire.ExpireHold{HoldId: c.ID, Term: w.about(w.d.Term), Generation: w.about(c.HoldGeneration)}
	if c.Graced() && w.roll(2) == 0 {
		op.Grace, op.Generation = true, w.about(c.GraceGeneration)
	}
	return &wire.Command{Op: &wire.Command_ExpireHold{ExpireHold: op}}
}

// who returns an operator, sometimes with too long a name.
func (w *walker) who() string {
	return []string{"", "op", strings.Repeat("o", 257)}[min(w.roll(3), w.roll(3), w.roll(9))]
}

// reason returns a reason that is mostly valid.
func (w *walker) reason() string {
	switch w.roll(25) {
	case 0:
		return ""
	case 1:
		return strings.Repeat("r", 1025)
	case 2:
		return []string{" \t ", "two\nlines", "\u0085"}[w.roll(3)]
	}
	return "because"
}

// callerNumber returns one of a few callers, one of which comes most often.
func callerNumber(n uint64) *wire.Caller {
	identity := []string{"busy", "busy", "busy", "busy", "ann", "busy", "bob"}[n%7]
	if n%5 == 0 {
		return nil
	}
	return &wire.Caller{Identity: identity, Credential: "token 7", Address: "h:1"}
}

// operator returns one of the commands of operators.
func (w *walker) operator() *wire.Command {
	if w.one(20) {
		return w.recordAct()
	}
	permits := func(c *model.Claim) bool { return c.Locks[0].Mode == wire.Mode_PERMITS }
	if w.one(3) && (w.any(permits) || w.one(9)) {
		c := w.some(permits)
		return &wire.Command{Op: &wire.Command_Resize{Resize: &wire.Resize{Name: c.Locks[0].Name, Limit: uint64(w.roll(6)), Reason: w.reason(), Operator: w.who(), Ticket: "T-1"}}}
	}
	c := w.some((*model.Claim).Holds)
	if w.one(3) {
		return &wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: c.ID, Token: w.token(c), Reason: w.reason(), Operator: w.who(), Ticket: "T-1"}}}
	}
	return &wire.Command{Op: &wire.Command_Revoke{Revoke: &wire.Revoke{HoldId: c.ID, Token: w.token(c), Reason: w.reason(), Operator: w.who(), Ticket: "T-1", GraceMs: []uint32{0, 60, 800}[w.roll(3)]}}}
}

// aYear is how far a floor may be ahead, in tokens.
const aYear = 366 * 86_400 << 32

// recordAct returns a record of an operator's action on the cluster itself.
func (w *walker) recordAct() *wire.Command {
	op := &wire.RecordAct{Action: wire.AuditRecord_Action(w.roll(12)), Reason: w.reason(), Operator: w.who(), Ticket: "T-1", Member: "n4"}
	n := w.roll(9)
	switch op.Action {
	case wire.AuditRecord_FORCE_RELEASE, wire.AuditRecord_SKIP_DELAY: // which this command does not record
		op.Action, op.Member = wire.AuditRecord_DRAIN_MEMBER, fmt.Sprint("n", 1+n%3)
	case wire.AuditRecord_REVOKE:
		op.Action, op.Member = wire.AuditRecord_UNDRAIN_MEMBER, fmt.Sprint("n", 1+n%3)
	}
	switch {
	case n == 0:
		op.Address = strings.Repeat("a", 513)
	case op.Action >= wire.AuditRecord_ACKNOWLEDGE_ALARMS && n > 1: // its outcome is known at once
	case n < 5:
		op.Outcome, op.Message, op.BegunRevision = wire.Status_Code(n), "it failed", w.d.Revision
	case n == 5:
		op.Outcome, op.Message = 1, strings.Repeat("m", 513)
	case n == 6:
		op.Ticket = strings.Repeat("t", 257)
	}
	return &wire.Command{Op: &wire.Command_RecordAct{RecordAct: op}}
}

// membership records one of a few nodes with one of a few incarnations, drains or removes it.
func (w *walker) membership() *wire.Command {
	id := fmt.Sprint("n", 2+w.roll(2))
	if w.d.Revision%3 == 0 && !w.labelled {
		action := wire.AuditRecord_DRAIN_MEMBER + wire.AuditRecord_Action(w.d.Revision%2)
		return &wire.Command{Op: &wire.Command_RecordAct{RecordAct: &wire.RecordAct{Action: action, Reason: "r", Member: id}}}
	}
	if w.one(3) {
		return &wire.Command{Op: &wire.Command_DropMember{DropMember: &wire.DropMember{Id: id}}}
	}
	m := &wire.Member{Id: id, PeerAddr: "a", Level: Level}
	if !w.one(4) {
		m.Incarnation = fmt.Sprint("i", w.roll(6))
	}
	return &wire.Command{Op: &wire.Command_PutMember{PutMember: &wire.PutMember{Member: m}}}
}

// fillAudit adds the audit records of a backup, sometimes as many as are allowed, or invalid ones.
func (w *walker) fillAudit(op *wire.RestoreBackup) {
	n := []int{0, 2, 2, 200, 512, 513}[min(w.roll(6), w.roll(6))]
	for i := range n {
		op.Audit = append(op.Audit, &wire.AuditRecord{Id: uint64(5 + i), Action: wire.AuditRecord_RESIZE, Lock: "old", Reason: "old", Caller: callerNumber(uint64(i))})
	}
	if n == 0 {
		return
	}
	switch r := op.Audit[w.roll(n)]; w.roll(12) {
	case 0:
		r.Imported = &wire.AuditImport{ClusterId: "older", Id: 3, RestoreId: 9}
	case 1:
		r.Id = uint64(w.roll(9))
	case 2:
		r.Lock = "//"
	case 3:
		r.WallUnixMs = -1
	case 4:
		r.Action = 77
	}
}

// restoreBackup starts a new lineage.
func (w *walker) restoreBackup() *wire.Command {
	op := &wire.RestoreBackup{TokenFloor: w.d.Token + uint64(w.roll(3)) - 1, Lineage: "again", Reason: w.reason(), Operator: "op"}
	op.ClusterId = []string{walkCluster, walkCluster, walkCluster, walkCluster, "", "other"}[w.roll(6)]
	op.ClockUnixMs = []uint64{0, epoch - 1000 + 300*uint64(w.roll(14)), 1 << 50}[min(w.roll(3), w.roll(3))]
	op.Backup = &wire.Backup{ClusterId: "lost", Revision: 7, Token: uint64(w.roll(2_000)), Sha256: make([]byte, 32*w.roll(2))}
	op.Settings = &wire.Settings{MaxSessions: uint64(2 + w.roll(6)), MaxValueBytes: 3}
	switch w.roll(8) {
	case 0:
		op.Lineage = ""
	case 1:
		op.Lineage = strings.Repeat("l", 65)
	case 2:
		op.Settings.MinTtlMs = 1 << 30
	case 3:
		op.TokenFloor = max(ClockToken(op.ClockUnixMs), w.d.Token) + aYear + uint64(w.roll(2))
	case 4:
		op.Backup.Token = max(ClockToken(op.ClockUnixMs), w.d.Token) + aYear + uint64(w.roll(2))
	}
	w.setCaching(op.Settings)
	w.fillAudit(op)
	return &wire.Command{Op: &wire.Command_RestoreBackup{RestoreBackup: op}}
}

// backup mostly records a backup of the present lineage.
func (w *walker) backup() *wire.Command {
	b := &wire.SavedBackup{Name: fmt.Sprint("f", w.roll(3)), NodeId: "n1", Lineage: w.d.Lineage, Revision: w.about(w.d.Revision + 1), UnixMs: int64(w.roll(3)) - int64(w.roll(2))}
	if w.one(8) {
		b.Lineage += "?"
	}
	return &wire.Command{Op: &wire.Command_RecordBackup{RecordBackup: &wire.RecordBackup{Backup: b}}}
}
