package model

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// DefaultLimits returns the documented limits of a cluster that was configured with none.
func DefaultLimits() *wire.Settings {
	return &wire.Settings{
		MinTtlMs: 5_000, MaxTtlMs: 600_000, DefaultTtlMs: 15_000,
		MaxSessions: 100_000, MaxLocks: 1_000_000, MaxWaitersPerLock: 100_000,
		MaxClaimsPerSession: 1_024, MaxWindow: 1_024, MaxValueBytes: 1_024, MaxClientInfoBytes: 4_096,
		MaxStateBytes: 1 << 30, MaxSessionBytes: 8 << 20, MaxLeaseTtlMs: 604_800_000,
		MinKeyTtlMs: 10, MaxKeyTtlMs: 86_400_000,
	}
}

// Smallest are the documented minima of the limits. Tests of small limits lower them.
var Smallest = &wire.Settings{
	MinTtlMs: 100, MaxTtlMs: 100, DefaultTtlMs: 100, MaxLeaseTtlMs: 100, MinKeyTtlMs: 10, MaxKeyTtlMs: 10, MaxCachedIdleMs: 100,
	MaxSessions: 16, MaxLocks: 64, MaxWaitersPerLock: 16,
	MaxClaimsPerSession: 64, MaxWindow: 64, MaxValueBytes: 64, MaxClientInfoBytes: 256,
	MaxStateBytes: 5 << 20, MaxSessionBytes: 256 << 10,
}

var largest = &wire.Settings{
	MinTtlMs: 1 << 31, MaxTtlMs: 1 << 31, DefaultTtlMs: 1 << 31, MaxLeaseTtlMs: 1 << 31, MinKeyTtlMs: 1 << 31, MaxKeyTtlMs: 1 << 31, MaxCachedIdleMs: 1 << 31,
	MaxSessions: 1 << 24, MaxLocks: 1 << 28, MaxWaitersPerLock: 1 << 24,
	MaxClaimsPerSession: 1 << 21, MaxWindow: 1 << 21, MaxValueBytes: 1 << 16, MaxClientInfoBytes: 1 << 16,
	MaxStateBytes: 1 << 50, MaxSessionBytes: 1 << 50,
}

// limitsFrom fills in defaults. It returns nil if the limits are invalid.
func limitsFrom(given *wire.Settings) *wire.Settings {
	limits := DefaultLimits()
	if most := given.GetMaxStateBytes(); most > 0 && most < limits.MaxSessionBytes {
		limits.MaxSessionBytes = most
	}
	limits.MaxLeaseTtlMs = max(limits.MaxLeaseTtlMs, given.GetMaxTtlMs())
	proto.Merge(limits, given)
	if limits.MinTtlMs > limits.DefaultTtlMs || limits.DefaultTtlMs > limits.MaxTtlMs || limits.DefaultTtlMs > limits.MaxLeaseTtlMs || limits.MaxSessionBytes > limits.MaxStateBytes || limits.MinKeyTtlMs > limits.MaxKeyTtlMs {
		return nil
	}
	fields, get := limits.ProtoReflect().Descriptor().Fields(), limits.ProtoReflect().Get
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Kind() == protoreflect.BoolKind || f.Name() == "max_cached_idle_ms" && given.GetMaxCachedIdleMs() == 0 {
			continue
		}
		if n := get(f).Uint(); n < Smallest.ProtoReflect().Get(f).Uint() || n > largest.ProtoReflect().Get(f).Uint() {
			return nil
		}
	}
	return limits
}

// highestFloor leaves room for a trillion grants. aYear is the maximum distance of a token floor from the
// clock.
const (
	highestFloor = 1<<63 - 1 - 1<<40
	aYear        = 31_622_400 << 32
	beginning    = 1_704_067_200_000 // start of 2024
	latest       = beginning + highestFloor>>32*1000
)

// clock returns the smallest token of that millisecond.
func clock(unixMs uint64) uint64 {
	if unixMs < beginning {
		return 0
	}
	seconds, fraction := (min(unixMs, latest)-beginning)/1000, (min(unixMs, latest)-beginning)%1000
	return seconds<<32 + (fraction<<32)/1000
}

func (d *Model) bootstrap(op *wire.Bootstrap) *wire.Result {
	limits := limitsFrom(op.GetSettings())
	if d.Cluster != "" {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	d.Cluster, d.Lineage, d.Token, d.Level, d.Limits = op.ClusterId, op.Lineage, max(d.Token, op.TokenFloor), levelOfLimits(op.Settings), limits
	d.newHistory()
	for _, m := range op.Members {
		d.member(m)
	}
	return says(wire.Status_OK)
}

func validMember(m *wire.Member) bool {
	for _, text := range []string{m.GetId(), m.GetIncarnation(), m.GetPeerAddr(), m.GetClientAddr(), m.GetHttpAddr()} {
		if !readable(text, 512) {
			return false
		}
	}
	return m.GetId() != "" && !m.GetDrained()
}

// member stores a copy in the list and replaces an entry with the same ID.
func (d *Model) member(m *wire.Member) {
	at, found := slices.BinarySearchFunc(d.Members, m.Id, func(m *wire.Member, id string) int { return cmp.Compare(m.Id, id) })
	if !found {
		d.Members = slices.Insert(d.Members, at, nil)
	}
	d.Members[at] = proto.CloneOf(m)
}

func (d *Model) memberAt(id string) int {
	return slices.IndexFunc(d.Members, func(m *wire.Member) bool { return m.Id == id })
}

func (d *Model) putMember(m *wire.Member) *wire.Result {
	if m.Level != 0 && m.Level < d.Level {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	if slices.ContainsFunc(d.Removed, func(r *wire.RemovedMember) bool { return r.Incarnation == m.Incarnation }) {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	if m.Incarnation != "" && slices.ContainsFunc(d.Members, func(o *wire.Member) bool { return o.Incarnation == m.Incarnation && o.Id != m.Id }) {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	at := d.memberAt(m.Id)
	if at < 0 {
		if len(d.Members) >= 64 {
			return says(wire.Status_RESOURCE_EXHAUSTED)
		}
		d.member(m)
		return says(wire.Status_OK)
	}
	known := proto.CloneOf(d.Members[at])
	if known.Incarnation != "" && m.Incarnation != "" && known.Incarnation != m.Incarnation {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	proto.Merge(known, m)
	d.member(known)
	return says(wire.Status_OK)
}

func (d *Model) dropMember(id string) *wire.Result {
	at := d.memberAt(id)
	if at < 0 {
		return says(wire.Status_NOT_FOUND)
	}
	if gone := d.Members[at]; gone.Incarnation != "" {
		d.Removed = append(d.Removed, &wire.RemovedMember{Id: gone.Id, Incarnation: gone.Incarnation, Revision: d.Revision})
	}
	d.Removed = d.Removed[max(0, len(d.Removed)-256):]
	d.Members = slices.Delete(d.Members, at, at+1)
	delete(d.ports, id)
	return says(wire.Status_OK)
}

func (d *Model) raiseLevel(level uint32) *wire.Result {
	switch {
	case level == d.Level:
		return says(wire.Status_OK)
	case level < d.Level, slices.ContainsFunc(d.Members, func(m *wire.Member) bool { return m.Level < level }):
		return says(wire.Status_FAILED_PRECONDITION)
	}
	d.Level = level
	return says(wire.Status_OK)
}

func (d *Model) suspend() *wire.Result {
	if d.Suspended == 0 {
		d.Suspended = d.Revision
	}
	return says(wire.Status_OK)
}

func (d *Model) saved(b *wire.SavedBackup) *wire.Result {
	if b.Lineage != d.Lineage || b.Revision > d.Revision {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	d.Saved = b
	return says(wire.Status_OK)
}

// endSuspension ends the suspension that started at that revision and grants what has become free since.
func (d *Model) endSuspension(revision uint64) *wire.Result {
	if d.Suspended == 0 || revision != d.Suspended {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	d.Suspended = 0
	d.grantReady()
	return says(wire.Status_OK)
}

func (d *Model) beginTerm(op *wire.BeginTerm) *wire.Result {
	if op.Term < d.Term || op.Term == d.Term && op.LeaderId != d.leader {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	if op.Term > d.Term {
		d.Terms = append(d.Terms, &wire.TermStart{Term: op.Term, Revision: d.Revision, Nonce: op.Nonce})
		d.Terms = d.Terms[max(0, len(d.Terms)-256):]
	}
	d.Term, d.leader = op.Term, op.LeaderId
	// A single wrong clock advances the counter by at most a year beyond the larger of its value and the
	// median clock.
	most := min(max(d.Token, clock(op.MedianUnixMs)), highestFloor-aYear) + aYear
	d.Token = max(d.Token, min(clock(op.ClockUnixMs), most))
	return says(wire.Status_OK)
}

func (d *Model) restoreBackup(op *wire.RestoreBackup) *wire.Result {
	limits, ahead := limitsFrom(op.GetSettings()), max(d.Token, clock(op.GetClockUnixMs()))+aYear
	floor := max(d.Token, clock(op.GetClockUnixMs()), op.GetTokenFloor(), op.GetBackup().GetToken()+1<<32+op.GetClockUnixMs()/1000<<20)
	switch {
	case op.ClockUnixMs > latest, op.TokenFloor > ahead, op.Backup.GetToken() > ahead, floor > highestFloor:
		return says(wire.Status_INVALID_ARGUMENT)
	case op.ClusterId != "" && op.ClusterId != d.Cluster,
		op.ClusterId == "" && (d.Opened > d.before || d.acted > 0 || len(d.Claims) > 0):
		return says(wire.Status_FAILED_PRECONDITION)
	}
	action := wire.AuditRecord_RESTORE
	if unused := d.Opened == d.before && d.acted == 0 && len(d.Claims) == 0; unused && wire.RecoveredFrom(d.Cluster, op.Backup.GetClusterId()) {
		action = wire.AuditRecord_RECOVER
	}
	d.endAll()
	d.Token, d.Limits, d.Lineage, d.Saved = floor, limits, op.Lineage, nil
	d.newHistory()
	by := d.audited + uint64(len(op.Audit)) + 1
	for _, r := range op.Audit {
		r = proto.CloneOf(r)
		if r.Imported == nil {
			r.Imported = &wire.AuditImport{ClusterId: op.Backup.GetClusterId(), Id: r.Id}
		}
		d.audited++
		r.Id, r.Imported.RestoreId = d.audited, by
		d.Imported = d.audit(d.Imported, r)
	}
	d.takeOver(op)
	d.record(action, op, &wire.AuditRecord{Backup: op.Backup})
	return &wire.Result{Status: wire.Status_OK, Token: d.Token}
}

// endAll ends all sessions, holds and lock-delays.
func (d *Model) endAll() {
	for _, s := range slices.Clone(d.Live) {
		for _, c := range d.Of(s.ID) {
			c.Delay = 0
		}
		d.finish(s, wire.Event_SESSION_EXPIRED, "")
	}
	for _, c := range slices.Clone(d.Claims) {
		d.reopen(c)
	}
	for _, e := range d.News {
		e.Restored = e.Type != wire.Event_DELAY_ENDED
	}
}

// newHistory starts the session IDs above all that were ever assigned.
func (d *Model) newHistory() {
	d.before = max(d.Opened, d.Token/4096)
	d.Opened = d.before
}

// lost returns the answer to a request of an unknown session.
func (d *Model) lost(id uint64) *wire.Result {
	return &wire.Result{Status: wire.Status_SESSION_LOST, Restored: 0 < id && id <= d.before}
}

// canBeRestored reports whether a backup may contain these records.
func canBeRestored(records []*wire.AuditRecord) bool {
	last := uint64(0)
	for _, r := range records {
		if r.Id <= last || !validRecord(r) || r.WallUnixMs < 0 || r.WallUnixMs >= 253_402_300_800_000 {
			return false
		}
		last = r.Id
	}
	return len(records) <= 512
}

func validRecord(r *wire.AuditRecord) bool {
	named := r.Lock == "" || wire.ValidName(r.Lock) == nil
	return r.Action > 0 && r.Action <= wire.AuditRecord_RECOVER && named && readable(r.Reason, 1024) && readable(r.Operator, 256) &&
		len(r.ClientName) <= 256 && utf8.ValidString(r.ClientName) && r.Token < 1<<63 && r.Limit <= 1<<31 &&
		readable(r.Member, 512) && readable(r.Address, 512) && readable(r.Imported.GetClusterId(), 512) && validBackup(r.Backup) &&
		validCaller(r.Caller) && readable(r.TokenId, 12) && readable(r.Identity, 256) && readable(r.Ticket, 256) && validEnd(r) && validLocksOf(r)
}

// validEnd reports whether a record's outcome may be as it is.
func validEnd(r *wire.AuditRecord) bool {
	return wire.Status_Code_name[int32(r.Outcome)] != "" && readable(r.Message, 512)
}

// validLocksOf reports whether a record may name these locks of a hold.
func validLocksOf(r *wire.AuditRecord) bool {
	for _, name := range r.Locks {
		if !validName(name) {
			return false
		}
	}
	return len(strings.Join(r.Locks, "")) <= 2048 && r.FurtherLocks <= 64
}

func validBackup(b *wire.Backup) bool {
	sum := len(b.GetSha256())
	return readable(b.GetClusterId(), 512) && readable(b.GetLineage(), 64) && (sum == 0 || sum == 32) && b.GetToken() < 1<<63
}

// recordAct records an act on the cluster that is about to be performed.
func (d *Model) recordAct(op *wire.RecordAct) *wire.Result {
	if op.Action == wire.AuditRecord_DRAIN_MEMBER || op.Action == wire.AuditRecord_UNDRAIN_MEMBER {
		return d.drain(op)
	}
	d.record(op.Action, op, aboutMember(op))
	if op.Action == wire.AuditRecord_ACKNOWLEDGE_ALARMS {
		d.Acknowledged = d.Revision
	}
	return says(wire.Status_OK)
}

// drain sets or clears the flag of a member. Some member keeps the right to lead.
func (d *Model) drain(op *wire.RecordAct) *wire.Result {
	at, drained := d.memberAt(op.Member), op.Action == wire.AuditRecord_DRAIN_MEMBER
	if at < 0 {
		return says(wire.Status_NOT_FOUND)
	}
	if d.Members[at].Drained == drained {
		return says(wire.Status_OK)
	}
	rest := slices.DeleteFunc(slices.Clone(d.Members), func(m *wire.Member) bool { return m.Drained || m.Id == op.Member })
	if drained && len(rest) == 0 {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	changed := proto.CloneOf(d.Members[at])
	changed.Drained = drained
	d.member(changed)
	d.record(op.Action, op, aboutMember(op))
	return says(wire.Status_OK)
}

func aboutMember(op *wire.RecordAct) *wire.AuditRecord {
	return &wire.AuditRecord{
		Action: op.GetAction(), Member: op.GetMember(), Address: op.GetAddress(),
		Outcome: op.GetOutcome(), Message: op.GetMessage(), BegunRevision: op.GetBegunRevision(),
	}
}
