package model

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// DefaultLimits are those of a cluster that was given none, as documented.
func DefaultLimits() *wire.Settings {
	return &wire.Settings{
		MinTtlMs: 5_000, MaxTtlMs: 600_000, DefaultTtlMs: 15_000,
		MaxSessions: 100_000, MaxLocks: 1_000_000, MaxWaitersPerLock: 100_000,
		MaxClaimsPerSession: 1_024, MaxWindow: 1_024, MaxValueBytes: 1_024, MaxClientInfoBytes: 4_096,
		MaxStateBytes: 1 << 30, MaxSessionBytes: 8 << 20,
	}
}

// limitsFrom fills in what is not given; nil if they cannot be kept.
func limitsFrom(given *wire.Settings) *wire.Settings {
	limits := DefaultLimits()
	if most := given.GetMaxStateBytes(); most > 0 && most < limits.MaxSessionBytes {
		limits.MaxSessionBytes = most
	}
	proto.Merge(limits, given)
	ascend := limits.MinTtlMs <= limits.DefaultTtlMs && limits.DefaultTtlMs <= limits.MaxTtlMs
	session, state := limits.MaxSessionBytes, limits.MaxStateBytes
	if session < 256<<10 || state < 2<<20 || session > state || state > 1<<50 {
		return nil
	}
	if !ascend || limits.MaxTtlMs > 1<<31 || limits.MaxValueBytes > 1<<16 || limits.MaxClientInfoBytes > 1<<16 {
		return nil
	}
	return limits
}

// highestFloor leaves a trillion grants.
const highestFloor = 1<<63 - 1 - 1<<40

func (d *Model) bootstrap(op *wire.Bootstrap) *wire.Result {
	limits := limitsFrom(op.GetSettings())
	if d.Cluster != "" {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	d.Cluster, d.Lineage, d.Token, d.Level, d.Limits = op.ClusterId, op.Lineage, op.TokenFloor, 1, limits
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
	return m.GetId() != ""
}

// member puts a copy into the list, in place of another one of that id.
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

// endSuspension lets everybody have what has come free since the suspension of that revision.
func (d *Model) endSuspension(revision uint64) *wire.Result {
	if d.Suspended == 0 || revision != d.Suspended {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	d.Suspended = 0
	d.settle()
	return says(wire.Status_OK)
}

func (d *Model) beginTerm(op *wire.BeginTerm) *wire.Result {
	if op.Term < d.Term || op.Term == d.Term && op.LeaderId != d.leader {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	d.Term, d.leader = op.Term, op.LeaderId
	return says(wire.Status_OK)
}

func (d *Model) restoreBackup(op *wire.RestoreBackup) *wire.Result {
	limits := limitsFrom(op.GetSettings())
	if len(d.Live) > 0 || len(d.Claims) > 0 {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	d.Token = max(d.Token, op.TokenFloor)
	d.Limits, d.Lineage = limits, op.Lineage
	d.Audit, d.audited = slices.Clone(op.Audit), 0
	if n := len(op.Audit); n > 0 {
		d.audited = op.Audit[n-1].Id
	}
	d.record(wire.AuditRecord_RESTORE, op.Operator, op.Reason, &wire.AuditRecord{})
	return says(wire.Status_OK)
}

// consecutive says whether records can be all that an audit has kept.
func consecutive(records []*wire.AuditRecord) bool {
	for i, r := range records {
		if r.Id == 0 || r.Id > 1<<62 || r.Id != records[0].Id+uint64(i) ||
			!readable(r.Lock, 512) || !readable(r.ClientName, 256) || !wellPut(r.Reason, r.Operator) {
			return false
		}
	}
	return len(records) <= 256
}
