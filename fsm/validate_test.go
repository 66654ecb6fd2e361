package fsm

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// commandKinds returns all operations in the schema.
func commandKinds() []protoreflect.FieldDescriptor {
	var kinds []protoreflect.FieldDescriptor
	fields := (&wire.Command{}).ProtoReflect().Descriptor().Oneofs().ByName("op").Fields()
	for i := range fields.Len() {
		kinds = append(kinds, fields.Get(i))
	}
	return kinds
}

// soundCommand returns a command of that kind that Validate accepts.
func soundCommand(t *testing.T, kind protoreflect.FieldDescriptor) *wire.Command {
	t.Helper()
	acquire := &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a"}}}
	hash := secretHash("s")
	member := &wire.Member{Id: "n1"}
	cmd := &wire.Command{Seq: 1}
	switch kind.Name() {
	case "bootstrap":
		cmd.Op = &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c", Members: []*wire.Member{member}}}
	case "begin_term":
		cmd.Op = &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: 1}}
	case "put_member":
		cmd.Op = &wire.Command_PutMember{PutMember: &wire.PutMember{Member: member}}
	case "open_session":
		cmd.Op = &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: hash}}
	case "attach_session":
		cmd.Op = &wire.Command_AttachSession{AttachSession: &wire.AttachSession{SecretHash: hash}}
	case "open_lease":
		cmd.Op = &wire.Command_OpenLease{OpenLease: &wire.OpenLease{SecretHash: hash, TtlMs: 15_000, Acquire: acquire}}
	case "change_keys":
		cmd.Op = &wire.Command_ChangeKeys{ChangeKeys: &wire.ChangeKeys{
			Action: wire.ChangeKeys_ACQUIRE, Names: []string{"a"}, Value: []byte("v"), TtlMs: 10, NodeId: "n1", Boot: 1, Seq: 1,
		}}
	case "extend_lease":
		cmd.Op = &wire.Command_ExtendLease{ExtendLease: &wire.ExtendLease{SecretHash: hash}}
	case "confirm_lease":
		cmd.Op = &wire.Command_ConfirmLease{ConfirmLease: &wire.ConfirmLease{SecretHash: hash}}
	case "release_lease":
		cmd.Op = &wire.Command_ReleaseLease{ReleaseLease: &wire.ReleaseLease{SecretHash: hash}}
	case "acquire":
		cmd.Op = &wire.Command_Acquire{Acquire: acquire}
	case "acquire_cached":
		cmd.Op = &wire.Command_AcquireCached{AcquireCached: &wire.AcquireCached{Acquire: acquire, Tokens: 1, IdleMs: 1}}
	case "force_release":
		cmd.Op = &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{Reason: "r"}}
	case "revoke":
		cmd.Op = &wire.Command_Revoke{Revoke: &wire.Revoke{Reason: "r"}}
	case "skip_delay":
		cmd.Op = &wire.Command_SkipDelay{SkipDelay: &wire.SkipDelay{Name: "a", Reason: "r"}}
	case "resize":
		cmd.Op = &wire.Command_Resize{Resize: &wire.Resize{Name: "a", Limit: 1, Reason: "r"}}
	case "force_close":
		cmd.Op = &wire.Command_ForceClose{ForceClose: &wire.ForceClose{Reason: "r"}}
	case "restore_backup":
		cmd.Op = &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{Lineage: "l", Reason: "r"}}
	case "record_backup":
		cmd.Op = &wire.Command_RecordBackup{RecordBackup: &wire.RecordBackup{Backup: &wire.SavedBackup{Name: "f", NodeId: "n1"}}}
	case "record_act":
		cmd.Op = &wire.Command_RecordAct{RecordAct: &wire.RecordAct{Action: wire.AuditRecord_ADD_MEMBER, Reason: "r"}}
	case "set_policy":
		cmd.Op = &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Reason: "r"}}
	case "create_token":
		cmd.Op = &wire.Command_CreateToken{CreateToken: &wire.CreateToken{Sha256: hash, Name: "ann", Reason: "r"}}
	case "revoke_token":
		cmd.Op = &wire.Command_RevokeToken{RevokeToken: &wire.RevokeToken{Reason: "r"}}
	default:
		m := cmd.ProtoReflect()
		m.Set(kind, m.NewField(kind))
	}
	return cmd
}

// TestEveryKindOfCommandIsValidated takes the kinds from the schema, so that a new one without validation
// fails, and invalidates every text and every list of each.
func TestEveryKindOfCommandIsValidated(t *testing.T) {
	for _, kind := range commandKinds() {
		t.Run(string(kind.Name()), func(t *testing.T) {
			sound := soundCommand(t, kind)
			if refusal := Validate(sound, DefaultSettings()); refusal != nil {
				t.Fatalf("%v is refused: %v", sound, refusal)
			}
			spoiled := 0
			spoil(sound.ProtoReflect(), kind, func(what string) {
				spoiled++
				if refusal := Validate(sound, DefaultSettings()); refusal == nil {
					t.Errorf("%s is accepted", what)
				} else if len(refusal.Message) > 2_000 {
					t.Errorf("%s is refused in %d bytes", what, len(refusal.Message))
				}
			})
			t.Logf("%d spoiled fields", spoiled)
		})
	}
	if refusal := Validate(&wire.Command{Seq: 1}, DefaultSettings()); refusal == nil {
		t.Error("a command without an operation is accepted")
	}
}

// spoil sets each text and each list below a field to values that no command may have, one at a time, and
// calls check with each.
func spoil(m protoreflect.Message, field protoreflect.FieldDescriptor, check func(what string)) {
	try := func(what string, value protoreflect.Value) {
		old, had := m.Get(field), m.Has(field)
		m.Set(field, value)
		check(fmt.Sprintf("%s: %s", field.FullName(), what))
		if m.Clear(field); had {
			m.Set(field, old)
		}
	}
	switch {
	case field.IsList():
		long := m.NewField(field).List()
		for range 3_000 {
			long.Append(long.NewElement())
		}
		try("3,000 elements", protoreflect.ValueOfList(long))
		if field.Kind() == protoreflect.MessageKind {
			list := m.NewField(field).List()
			if m.Has(field) {
				list = m.Get(field).List()
			}
			element := list.NewElement()
			if list.Len() > 0 {
				element = protoreflect.ValueOfMessage(proto.Clone(list.Get(0).Message().Interface()).ProtoReflect())
			}
			one := m.NewField(field).List()
			one.Append(element)
			old, had := m.Get(field), m.Has(field)
			m.Set(field, protoreflect.ValueOfList(one))
			spoilAll(element.Message(), check)
			if m.Clear(field); had {
				m.Set(field, old)
			}
		}
	case field.Kind() == protoreflect.MessageKind:
		old, had := m.Get(field), m.Has(field)
		spoilAll(m.Mutable(field).Message(), check)
		if m.Clear(field); had {
			m.Set(field, old)
		}
	case field.Kind() == protoreflect.StringKind:
		try("no UTF-8", protoreflect.ValueOfString("\xff"))
		try("a newline", protoreflect.ValueOfString("a\nb"))
		try("60 KB", protoreflect.ValueOfString(strings.Repeat("x", 60_000)))
	case field.Kind() == protoreflect.BytesKind:
		try("60 KB", protoreflect.ValueOfBytes(make([]byte, 60_000)))
	}
}

func spoilAll(m protoreflect.Message, check func(what string)) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		spoil(m, fields.Get(i), check)
	}
}

// TestAcknowledgementsAreBounded checks a part of a command that does not belong to the operation.
func TestAcknowledgementsAreBounded(t *testing.T) {
	limits := DefaultSettings()
	cmd := &wire.Command{SessionId: 1, Acked: make([]uint64, limits.MaxWindow+limits.MaxClaimsPerSession), Op: &wire.Command_Acknowledge{Acknowledge: &wire.Acknowledge{}}}
	if refusal := Validate(cmd, limits); refusal != nil {
		t.Error(refusal)
	}
	cmd.Acked = append(cmd.Acked, 1)
	if refusal := Validate(cmd, limits); refusal.GetStatus() != wire.Status_INVALID_ARGUMENT {
		t.Errorf("one too many: %v", refusal)
	}
}
