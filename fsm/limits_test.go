package fsm

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// span is the range of a field in a command: the bytes of a text, or a number.
type span struct{ from, to uint64 }

const anyNumber = 1<<64 - 1

var (
	addressSpan  = span{0, 256}
	memberSpan   = span{0, 512}
	lineageSpan  = span{0, 64}
	lockNameSpan = span{1, 512}
	reasonSpan   = span{1, 1_024}
	operatorSpan = span{0, 256}
	hashSpan     = span{32, 32}
	valueSpan    = span{0, 1_024}
	tokenSpan    = span{0, 1<<63 - 1}
	ttlSpan      = span{5_000, 600_000}
	keySpan      = span{10, 86_400_000}
	leaseSpan    = span{5_000, 604_800_000}
	maxHoldSpan  = span{100, 1 << 31}
	permitsSpan  = span{0, 1 << 31}
	// The whole client info has 4,096 bytes, including the tags of its fields.
	clientTextSpan, labelTextSpan = span{0, 4_093}, span{0, 4_090}
)

// fieldLimits are the limits of all texts and of all numbers that have limits, with the default settings.
// 0 is also allowed for a number: it means that none is given.
var fieldLimits = map[string]span{
	"Bootstrap.cluster_id": {1, 512}, "Bootstrap.lineage": lineageSpan, "Bootstrap.token_floor": {0, 366 * 24 * 3_600 << 32},
	"BeginTerm.leader_id": memberSpan, "BeginTerm.term": {1, anyNumber},
	"Member.id": {1, 512}, "Member.incarnation": memberSpan, "Member.peer_addr": memberSpan, "Member.client_addr": memberSpan, "Member.http_addr": memberSpan,
	"DropMember.id":             memberSpan,
	"OpenSession.secret_hash":   hashSpan,
	"OpenSession.ttl_ms":        ttlSpan,
	"ClientInfo.name":           clientTextSpan,
	"ClientInfo.host_name":      clientTextSpan,
	"ClientInfo.boot_id":        clientTextSpan,
	"ClientInfo.address":        addressSpan,
	"Label.key":                 labelTextSpan,
	"Label.value":               labelTextSpan,
	"AttachSession.secret_hash": hashSpan, "AttachSession.address": addressSpan,
	"OpenLease.secret_hash": hashSpan, "OpenLease.ttl_ms": leaseSpan,
	"OpenLease.owner_value": valueSpan,
	"ChangeKeys.node_id":    {1, 512}, "ChangeKeys.boot": {1, anyNumber}, "ChangeKeys.seq": {1, 1<<63 - 1}, "ChangeKeys.acked_below": {0, 1},
	"ChangeKeys.value": {1, 1_024}, "ChangeKeys.compare_bytes": {0, 1}, "ChangeKeys.ttl_ms": keySpan,
	"ExtendLease.secret_hash": hashSpan, "ExtendLease.ttl_ms": leaseSpan, "ConfirmLease.secret_hash": hashSpan, "ReleaseLease.secret_hash": hashSpan,
	"LockRequest.name": lockNameSpan, "LockRequest.permits": {0, 0}, "LockRequest.limit": permitsSpan,
	"AcquireCached.tokens": {1, 16_384}, "AcquireCached.idle_ms": {1, 600_000},
	"Acquire.value": valueSpan, "Acquire.max_hold_ms": maxHoldSpan, "Acquire.lock_delay_ms": {0, 60_000},
	"SetValue.value": valueSpan, "Extend.max_hold_ms": maxHoldSpan,
	"ForceRelease.reason": reasonSpan, "ForceRelease.operator": operatorSpan, "ForceRelease.ticket": operatorSpan,
	"Revoke.reason": reasonSpan, "Revoke.operator": operatorSpan, "Revoke.ticket": operatorSpan, "Revoke.grace_ms": {0, 1 << 31},
	"SkipDelay.name": lockNameSpan, "SkipDelay.reason": reasonSpan, "SkipDelay.operator": operatorSpan, "SkipDelay.ticket": operatorSpan,
	"Resize.name": lockNameSpan, "Resize.limit": {1, 1 << 31}, "Resize.reason": reasonSpan, "Resize.operator": operatorSpan, "Resize.ticket": operatorSpan,
	"ForceClose.reason": reasonSpan, "ForceClose.operator": operatorSpan, "ForceClose.ticket": operatorSpan, "ForceClose.identity": addressSpan,
	"RestoreBackup.lineage": {1, 64}, "RestoreBackup.cluster_id": memberSpan, "RestoreBackup.reason": reasonSpan, "RestoreBackup.operator": operatorSpan, "RestoreBackup.ticket": operatorSpan,
	"Backup.cluster_id": memberSpan, "Backup.lineage": lineageSpan, "Backup.token": tokenSpan, "Backup.sha256": hashSpan,
	"AuditImport.cluster_id": memberSpan,
	"SavedBackup.name":       {1, 512}, "SavedBackup.node_id": {1, 512}, "SavedBackup.lineage": {0, 64}, "SavedBackup.unix_ms": {0, 253402300799999},
	"AuditRecord.id": {1, anyNumber}, "AuditRecord.operator": operatorSpan, "AuditRecord.reason": {0, 1_024}, "AuditRecord.lock": {0, 512},
	"AuditRecord.client_name": addressSpan, "AuditRecord.member": memberSpan, "AuditRecord.address": memberSpan,
	"AuditRecord.token": tokenSpan, "AuditRecord.limit": permitsSpan,
	"AuditRecord.ticket": operatorSpan, "AuditRecord.message": memberSpan, "AuditRecord.further_locks": {0, 64}, "RecordAct.message": memberSpan,
	"AuditRecord.token_id": {0, 12}, "AuditRecord.identity": addressSpan,
	"Caller.identity": addressSpan, "Caller.credential": addressSpan, "Caller.address": addressSpan,
	"SetPolicy.reason": reasonSpan, "SetPolicy.operator": operatorSpan, "SetPolicy.ticket": operatorSpan,
	"CreateToken.sha256": hashSpan, "CreateToken.name": {1, 256}, "CreateToken.reason": reasonSpan, "CreateToken.operator": operatorSpan, "CreateToken.ticket": operatorSpan,
	"RevokeToken.token_id": {0, 12}, "RevokeToken.reason": reasonSpan, "RevokeToken.operator": operatorSpan, "RevokeToken.ticket": operatorSpan,
	"RecordAct.operator": operatorSpan, "RecordAct.ticket": operatorSpan, "RecordAct.reason": reasonSpan, "RecordAct.member": memberSpan, "RecordAct.address": memberSpan,
}

// cachedLimits are other limits of an acquire whose hold is to be cached: it is exclusive and has no value.
var cachedLimits = map[string]span{"Acquire.value": {0, 0}, "LockRequest.limit": {0, 0}}

// mayBeLeftOut are the fields that are only checked if they are given.
var mayBeLeftOut = map[string]bool{
	"OpenSession.ttl_ms": true, "OpenLease.ttl_ms": true, "ExtendLease.ttl_ms": true,
	"Acquire.max_hold_ms": true, "Extend.max_hold_ms": true, "Backup.sha256": true,
}

// TestLimitsOfFields takes the fields from the schema and tries each with its minimum and its maximum,
// and with one less and one more.
func TestLimitsOfFields(t *testing.T) {
	tried := map[string]bool{}
	for _, kind := range commandKinds() {
		cmd := soundCommand(t, kind)
		if op := cmd.GetRestoreBackup(); op != nil {
			op.Audit = []*wire.AuditRecord{{Id: 1, Action: wire.AuditRecord_REVOKE, Reason: "r"}}
		}
		walkFields(cmd.ProtoReflect(), kind, func(m protoreflect.Message, f protoreflect.FieldDescriptor) {
			name := string(f.Parent().Name() + "." + f.Name())
			switch f.Parent().Name() {
			case "Settings": // TestEverySettingIsBounded checks them
				return
			case "Role", "LockRule", "Binding", "Quota": // the tests of package rights check them
				return
			case "TokenInfo", "TokenRecord": // TestTokensOfABackup checks them
				return
			}
			tried[name] = true
			tryLimits(t, cmd, m, f, name)
		})
	}
	for name := range fieldLimits {
		if !tried[name] {
			t.Errorf("no command has %s", name)
		}
	}
}

func tryLimits(t *testing.T, cmd *wire.Command, m protoreflect.Message, f protoreflect.FieldDescriptor, name string) {
	limits, known := fieldLimits[name]
	if other, ok := cachedLimits[name]; ok && cmd.GetAcquireCached() != nil {
		limits = other
	}
	most := uint64(anyNumber)
	switch f.Kind() {
	case protoreflect.StringKind, protoreflect.BytesKind:
		if !known {
			t.Errorf("%s has no limit", name)
			return
		}
	case protoreflect.Uint32Kind:
		most = 1<<32 - 1
	case protoreflect.Uint64Kind:
	default:
		return
	}
	if !known {
		limits = span{0, most}
	}
	old := m.Get(f)
	defer m.Set(f, old)
	try := func(n uint64, good bool) {
		m.Set(f, fieldOf(f, n))
		if refusal := Validate(cmd, DefaultSettings()); (refusal == nil) != good {
			t.Errorf("%s of %d: %v", name, n, refusal)
		}
	}
	try(limits.from, true)
	try(min(limits.to, most), true)
	if limits.to < most {
		try(limits.to+1, false)
	}
	if limits.from > 0 {
		try(0, mayBeLeftOut[name])
		try(limits.from-1, limits.from == 1 && mayBeLeftOut[name])
	}
}

// fieldOf returns a text of n bytes, or n.
func fieldOf(f protoreflect.FieldDescriptor, n uint64) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(strings.Repeat("x", int(n)))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(make([]byte, n))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	}
	return protoreflect.ValueOfUint64(n)
}

// walkFields calls fn for the scalar fields below a field, with one element of each list.
func walkFields(m protoreflect.Message, f protoreflect.FieldDescriptor, fn func(protoreflect.Message, protoreflect.FieldDescriptor)) {
	switch {
	case f.IsList() && f.Kind() == protoreflect.MessageKind:
		list := m.Mutable(f).List()
		had := list.Len()
		if had == 0 {
			list.Append(list.NewElement())
		}
		walkAllFields(list.Get(0).Message(), fn)
		list.Truncate(had)
	case f.IsList():
	case f.Kind() == protoreflect.MessageKind:
		had := m.Has(f)
		if walkAllFields(m.Mutable(f).Message(), fn); !had {
			m.Clear(f)
		}
	default:
		fn(m, f)
	}
}

func walkAllFields(m protoreflect.Message, fn func(protoreflect.Message, protoreflect.FieldDescriptor)) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		walkFields(m, fields.Get(i), fn)
	}
}

// TestBudgetsAreExact uses the last unit, and one more.
func TestBudgetsAreExact(t *testing.T) {
	m := twoLocks(t)
	s, _ := m.sessions.get(1)
	limits := m.state.settings
	for free := range uint64(2) {
		left := limits.MaxSessionBytes - s.units() - free
		if r := m.sessionExhausted(s, left, free); r != nil {
			t.Errorf("%d units of the session, %d kept free: %v", left, free, r)
		}
		if r := m.sessionExhausted(s, left+1, free); r.GetStatus() != wire.Status_RESOURCE_EXHAUSTED {
			t.Errorf("one more unit of the session, %d kept free: %v", free, r)
		}
		left = limits.MaxStateBytes - m.Units() - free
		if r := m.stateExhausted(left, free); r != nil {
			t.Errorf("%d units of the state, %d kept free: %v", left, free, r)
		}
		if r := m.stateExhausted(left+1, free); r.GetStatus() != wire.Status_RESOURCE_EXHAUSTED {
			t.Errorf("one more unit of the state, %d kept free: %v", free, r)
		}
	}
}
