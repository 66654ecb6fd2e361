package admin

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// leftOut are the fields that have no meaning for a user, or that Client does not ask for.
var leftOut = []protoreflect.FullName{"quorumlock.v1.Revocation.revoked_unix_ms", "quorumlock.v1.DeadlockStep.wait_id", "quorumlock.v1.StatusResponse.examination"}

// number counts the values that fill has set, so that no two fields are equal.
type number uint64

// fill sets every field of a message to a value of its own.
func (n *number) fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		*n++
		switch {
		case field.IsList() && field.Kind() == protoreflect.StringKind:
			m.Mutable(field).List().Append(protoreflect.ValueOfString("a"))
		case field.IsList() && field.Kind() == protoreflect.EnumKind:
			m.Mutable(field).List().Append(protoreflect.ValueOfEnum(protoreflect.EnumNumber(1 + *n%3)))
		case field.IsList():
			n.fill(m.Mutable(field).List().AppendMutable().Message())
		case field.Kind() == protoreflect.MessageKind:
			n.fill(m.Mutable(field).Message())
		case field.Kind() == protoreflect.StringKind:
			m.Set(field, protoreflect.ValueOfString(string(rune('a'+*n%26))))
		case field.Kind() == protoreflect.BytesKind:
			m.Set(field, protoreflect.ValueOfBytes([]byte{byte(*n)}))
		case field.Kind() == protoreflect.BoolKind:
			m.Set(field, protoreflect.ValueOfBool(true))
		case field.Kind() == protoreflect.EnumKind:
			m.Set(field, protoreflect.ValueOfEnum(1))
		case field.Kind() == protoreflect.Int32Kind:
			m.Set(field, protoreflect.ValueOfInt32(int32(*n)))
		case field.Kind() == protoreflect.Int64Kind:
			m.Set(field, protoreflect.ValueOfInt64(int64(*n)))
		case field.Kind() == protoreflect.Uint32Kind:
			m.Set(field, protoreflect.ValueOfUint32(uint32(*n)))
		default:
			m.Set(field, protoreflect.ValueOfUint64(uint64(*n)))
		}
	}
}

func filled[M proto.Message](m M) M {
	n := number(100)
	n.fill(m.ProtoReflect())
	return m
}

// same compares a struct with the message it was converted from, field by field, and counts the fields of
// the message that it has.
func same(t *testing.T, got reflect.Value, m protoreflect.Message) {
	t.Helper()
	have := map[protoreflect.Name]bool{}
	for i := range got.NumField() {
		name := fieldName(got.Type().Field(i))
		field := m.Descriptor().Fields().ByName(name)
		if field == nil {
			continue
		}
		have[name] = true
		v := reflect.Indirect(got.Field(i))
		switch {
		case v.Kind() == reflect.Slice && field.IsList() && field.Kind() == protoreflect.EnumKind:
			if v.Len() != 1 || v.Index(0).Int() != int64(m.Get(field).List().Get(0).Enum()) {
				t.Errorf("%v.%s is %v", got.Type(), name, v)
			}
		case !v.IsValid() || v.IsZero():
			t.Errorf("%v.%s is not converted", got.Type(), name)
		case v.Kind() == reflect.Slice && field.IsList() && field.Kind() == protoreflect.MessageKind:
			same(t, v.Index(0), m.Get(field).List().Get(0).Message())
		case v.Type() == reflect.TypeFor[time.Duration]():
			if v.Int() != amount(field, m.Get(field))*int64(unit(field.Name())) {
				t.Errorf("%v.%s is %v", got.Type(), name, v)
			}
		case v.Type() == reflect.TypeFor[time.Time]():
			if v.Interface().(time.Time).UnixMilli() != m.Get(field).Int() {
				t.Errorf("%v.%s is %v", got.Type(), name, v)
			}
		case v.Kind() == reflect.Struct:
			same(t, v, m.Get(field).Message())
		case v.Kind() == reflect.Uint64 || v.Kind() == reflect.Uint32:
			if v.Uint() != m.Get(field).Uint() {
				t.Errorf("%v.%s is %v", got.Type(), name, v)
			}
		}
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if field := fields.Get(i); !have[field.Name()] && !slices.Contains(leftOut, field.FullName()) {
			t.Errorf("%v has no field for %s", got.Type(), field.FullName())
		}
	}
}

// TestEveryFieldIsConverted checks that each type has every field of its message, with the same value.
func TestEveryFieldIsConverted(t *testing.T) {
	check := func(got any, m proto.Message) { same(t, reflect.ValueOf(got), m.ProtoReflect()) }
	lock, one := filled(&wire.GetLockResponse{}), filled(&wire.LockInfo{})
	check(convert[Lock](lock), lock)
	check(convert[Lock](one), one)
	session, deadlock, status, record := filled(&wire.SessionInfo{}), filled(&wire.Deadlock{}), filled(&wire.StatusResponse{}), filled(&wire.AuditRecord{})
	check(convert[Session](session), session)
	check(convert[Deadlock](deadlock), deadlock)
	check(convert[Status](status), status)
	check(convert[AuditRecord](record), record)
	who, policy, token := filled(&wire.WhoAmIResponse{}), filled(&wire.Policy{}), filled(&wire.TokenInfo{})
	check(convert[Identity](who), who)
	check(convert[Policy](policy), policy)
	check(convert[Token](token), token)
	contention, claims := filled(&wire.ListContendedResponse{}), filled(&wire.GetSessionResponse{})
	check(convert[Contention](contention), contention)
	check(convert[SessionClaims](claims), claims)
	quota := filled(&wire.QuotaStatus{})
	check(convert[QuotaStatus](quota), quota)
	measured := filled(&wire.ListSamplesResponse{})
	check(convert[Samples](measured), measured)
}

// TestPolicyIsEncoded checks that a policy that was converted is encoded as it was.
func TestPolicyIsEncoded(t *testing.T) {
	policy := filled(&wire.Policy{})
	policy.Roles = append(policy.Roles, filled(&wire.Role{}))
	converted := convert[Policy](policy)
	if got := converted.encode(); !proto.Equal(got, policy) {
		t.Errorf("%v, want %v", got, policy)
	}
	if got := (*Policy)(nil).encode(); got != nil {
		t.Errorf("no policy becomes %v", got)
	}
}

// TestAbsentIsNil checks that what only the leader knows is absent from the answers of other nodes.
func TestAbsentIsNil(t *testing.T) {
	lock := convert[Lock](&wire.GetLockResponse{Name: "x", Holders: []*wire.HolderInfo{{HoldId: 1}}})
	if h := lock.Holders[0]; h.HeartbeatAge != nil || h.RemainingHold != nil || h.Revocation != nil || !h.Granted.IsZero() || lock.Queue != nil {
		t.Errorf("%+v", lock)
	}
	zero := uint64(0)
	lock = convert[Lock](&wire.GetLockResponse{Name: "x", Holders: []*wire.HolderInfo{{HoldId: 1, HeartbeatAgeMs: &zero, Mode: wire.Mode_SHARED}}})
	if h := lock.Holders[0]; h.HeartbeatAge == nil || *h.HeartbeatAge != 0 || h.Mode != client.Shared {
		t.Errorf("%+v", lock)
	}
}

// TestEnumsAreThoseOfTheSchema checks the numbers of the constants.
func TestEnumsAreThoseOfTheSchema(t *testing.T) {
	for ours, theirs := range map[Action]wire.AuditRecord_Action{
		ForceRelease: wire.AuditRecord_FORCE_RELEASE, Revoke: wire.AuditRecord_REVOKE, SkipDelay: wire.AuditRecord_SKIP_DELAY,
		Resize: wire.AuditRecord_RESIZE, ForceClose: wire.AuditRecord_FORCE_CLOSE, Restore: wire.AuditRecord_RESTORE, AddMember: wire.AuditRecord_ADD_MEMBER,
		RemoveMember: wire.AuditRecord_REMOVE_MEMBER, TransferLeadership: wire.AuditRecord_TRANSFER_LEADERSHIP,
		SaveSnapshot: wire.AuditRecord_SAVE_SNAPSHOT, AcknowledgeAlarms: wire.AuditRecord_ACKNOWLEDGE_ALARMS,
		SetPolicy: wire.AuditRecord_SET_POLICY, CreateToken: wire.AuditRecord_CREATE_TOKEN, RevokeToken: wire.AuditRecord_REVOKE_TOKEN,
		DrainMember: wire.AuditRecord_DRAIN_MEMBER, UndrainMember: wire.AuditRecord_UNDRAIN_MEMBER, Recover: wire.AuditRecord_RECOVER,
	} {
		if int32(ours) != int32(theirs) {
			t.Errorf("%v is %d", theirs, ours)
		}
	}
	if last := len(wire.AuditRecord_Action_name) - 1; int(Recover) != last || int32(FIFO) != int32(wire.Order_FIFO) || int32(Unfair) != int32(wire.Order_UNFAIR) {
		t.Errorf("the schema has %d actions", last)
	}
}

// TestVerbsAreThoseOfTheSchema checks the numbers and names of the verbs.
func TestVerbsAreThoseOfTheSchema(t *testing.T) {
	ours := []Verb{VerbRead, VerbLock, VerbOperate, VerbAudit, VerbBackup, VerbMembers, VerbRestore, VerbPolicy}
	for _, verb := range ours {
		if name, ok := wire.Verb_name[int32(verb)]; !ok || verb.String() != name {
			t.Errorf("%d is %v, %s in the schema", verb, verb, name)
		}
	}
	if len(ours) != len(wire.Verb_name)-1 {
		t.Errorf("%d verbs, and %d in the schema", len(ours), len(wire.Verb_name)-1)
	}
}

// TestQuotaKindsAreThoseOfTheSchema checks the numbers and names of the kinds of quotas.
func TestQuotaKindsAreThoseOfTheSchema(t *testing.T) {
	ours := []QuotaKind{QuotaSessions, QuotaClaims, QuotaBytes, QuotaWatches, QuotaConnections, QuotaRequestsPerSecond}
	for i, name := range []string{"SESSIONS", "CLAIMS", "BYTES", "WATCHES", "CONNECTIONS", "REQUESTS_PER_SECOND"} {
		if ours[i].String() != name || int32(ours[i]) != wire.QuotaUse_Kind_value[name] {
			t.Errorf("%s is %d, %v", name, ours[i], ours[i])
		}
	}
	if len(ours) != len(wire.QuotaUse_Kind_name)-1 {
		t.Errorf("%d kinds, and %d in the schema", len(ours), len(wire.QuotaUse_Kind_name)-1)
	}
}
