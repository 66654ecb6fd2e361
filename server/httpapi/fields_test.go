package httpapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// filler sets every field of a message to a unique value.
type filler struct {
	last  uint64
	depth int
}

const deepest = 3 // bounds the depth, because some messages contain themselves

func (f *filler) fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if oneof := field.ContainingOneof(); oneof != nil && !oneof.IsSynthetic() {
			continue
		}
		if !field.IsList() {
			m.Set(field, f.value(m.NewField(field), field))
			continue
		}
		list := m.NewField(field).List()
		for range 2 {
			list.Append(f.value(list.NewElement(), field))
		}
		m.Set(field, protoreflect.ValueOfList(list))
	}
}

func (f *filler) value(empty protoreflect.Value, field protoreflect.FieldDescriptor) protoreflect.Value {
	f.last++
	switch field.Kind() {
	case protoreflect.MessageKind:
		if f.depth++; f.depth <= deepest {
			f.fill(empty.Message())
		}
		f.depth--
		return empty
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(field.Enum().Values().Get(1 + int(f.last)%(field.Enum().Values().Len()-1)).Number())
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(fmt.Sprint("s", f.last))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(fmt.Appendf(nil, "%020d", f.last))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(f.last))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(f.last))
	case protoreflect.Sint32Kind, protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(f.last))
	}
	return protoreflect.ValueOfUint64(f.last)
}

// methodOf returns a procedure's descriptor in the schema.
func methodOf(procedure string) protoreflect.MethodDescriptor {
	service, method, _ := strings.Cut(procedure, "/")
	return wire.File_quorumlock_v1_service_proto.Services().ByName(protoreflect.Name(service)).Methods().ByName(protoreflect.Name(method))
}

// messageOf returns an empty message of a type.
func messageOf(t *testing.T, of protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(of.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return kind.New().Interface()
}

// TestEveryFieldOfARequestReachesTheReplica sets every field of every request, and searches for it by name in
// the proposed command.
func TestEveryFieldOfARequestReachesTheReplica(t *testing.T) {
	eachProcedure(t, func(st *stage, procedure string, p probe) {
		if p.method || p.repeats == changesNothing {
			return
		}
		ann := st.open("ann")
		req := messageOf(t, methodOf(procedure).Input())
		(&filler{last: 100}).fill(req.ProtoReflect())
		withSession(req, ann)
		if acquire, ok := req.(*wire.AcquireRequest); ok { // the other form is tested below
			acquire.Name, acquire.Mode, acquire.Permits, acquire.Limit = "", 0, 0, 0
		}
		if lease, ok := req.(*wire.AcquireLeaseRequest); ok {
			lease.Client.Address = ""
		}
		if create, ok := req.(*wire.CreateTokenRequest); ok {
			create.AuthToken, create.Name = identity.NewToken(), "ann"
		}
		sent := proto.Clone(req)
		text, err := protojson.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		st.ask(procedure, string(text))
		s := st.expect(p.first)
		defer s.withdraw()
		op := s.cmd.ProtoReflect()
		op = op.Get(op.WhichOneof(op.Descriptor().Oneofs().ByName("op"))).Message()
		for field, value := range sent.ProtoReflect().Range {
			name := field.Name()
			var got, want any
			switch into := op.Descriptor().Fields().ByName(name); {
			case name == "session":
				got, want = s.cmd.GetSessionId(), ann.num
			case name == "seq":
				got, want = s.cmd.GetSeq(), value.Uint()
			case name == "acked_below":
				got, want = s.cmd.GetAckedBelow(), value.Uint()
			case name == "secret":
				hash := hashOf(string(value.Bytes()))
				got, want = fmt.Sprintf("%x", op.Get(op.Descriptor().Fields().ByName("secret_hash")).Bytes()), fmt.Sprintf("%x", hash)
			case name == "auth_token" && procedure == "AccessService/CreateToken":
				hash, _ := identity.HashToken(value.String())
				got, want = fmt.Sprintf("%x", s.cmd.GetCreateToken().GetSha256()), fmt.Sprintf("%x", hash)
			case name == "ttl_ms" && procedure == "AccessService/CreateToken":
				got, want = s.cmd.GetCreateToken().GetEndsUnixMs(), time.Now().UnixMilli()+int64(value.Uint())
			case into == nil:
				t.Errorf("%s is not in %s", name, op.Descriptor().Name())
			default:
				got, want = fmt.Sprint(withoutAddress(op.Get(into))), fmt.Sprint(withoutAddress(value))
			}
			if got != want {
				t.Errorf("%s: the command has %v, want %v", name, got, want)
			}
		}
	})
}

// withoutAddress removes the address that the port adds to a client's description.
func withoutAddress(v protoreflect.Value) any {
	if m, ok := v.Interface().(protoreflect.Message); ok {
		if client, ok := m.Interface().(*wire.ClientInfo); ok {
			client = proto.CloneOf(client)
			client.Address = ""
			return prototext.Format(client)
		}
		return prototext.Format(m.Interface())
	}
	if list, ok := v.Interface().(protoreflect.List); ok {
		var all []string
		for i := range list.Len() {
			all = append(all, fmt.Sprint(withoutAddress(list.Get(i))))
		}
		return all
	}
	return v.Interface()
}

// withSession sets the session of a request to an existing one.
func withSession(req proto.Message, ann *visitor) {
	m := req.ProtoReflect()
	if field := m.Descriptor().Fields().ByName("session"); field != nil {
		m.Set(field, protoreflect.ValueOfMessage((&wire.Credentials{SessionId: ann.num, Secret: []byte("ann-----------------")[:16]}).ProtoReflect()))
	}
}

// TestEveryFieldOfAResultReachesTheCaller sets every field of a result, and searches for those that the
// response has under the same name.
func TestEveryFieldOfAResultReachesTheCaller(t *testing.T) {
	for status := range wire.Status_Code_name {
		eachOf(t, func(_ string, p probe) bool { return p.good[wire.Status_Code(status)] }, func(st *stage, procedure string, p probe) {
			a, first := st.after(procedure, p)
			res := &wire.Result{}
			(&filler{last: 1000}).fill(res.ProtoReflect())
			res.Status = wire.Status_Code(status)
			first.is(proto.CloneOf(res))
			answer := messageOf(t, methodOf(procedure).Output())
			if got := a.reply(); got.status != 200 {
				t.Fatalf("%d %s", got.status, got.body)
			} else if err := protojson.Unmarshal([]byte(got.body), answer); err != nil {
				t.Fatal(err)
			}
			// Fields of grants only, and fields that the port fills in itself.
			granted := map[string]bool{"hold_id": true, "token": true, "count": true}
			fields := answer.ProtoReflect().Descriptor().Fields()
			for i := range fields.Len() {
				name := fields.Get(i).Name()
				from := res.ProtoReflect().Descriptor().Fields().ByName(name)
				got := answer.ProtoReflect().Get(fields.Get(i))
				switch {
				case from == nil || name == "holders":
				case p.first == "Acquire" || p.first == "Upgrade" || p.first == "OpenLease":
					empty := granted[string(name)] && res.Status != wire.Status_GRANTED || name == "session_id" && p.first != "OpenLease"
					if want := res.ProtoReflect().Get(from); empty == (fmt.Sprint(withoutAddress(got)) == fmt.Sprint(withoutAddress(want))) {
						t.Errorf("%v: %s is %v, the result has %v", res.Status, name, got, want)
					}
				default:
					if want := res.ProtoReflect().Get(from); fmt.Sprint(got) != fmt.Sprint(want) {
						t.Errorf("%v: %s is %v, want %v", res.Status, name, got, want)
					}
				}
			}
			if acquired, ok := answer.(*wire.AcquireResponse); ok {
				left := acquired.GetRemainingTtlMs()
				if granted := res.Status == wire.Status_GRANTED; granted != (left == uint64((14*time.Second).Milliseconds())) || !granted && left != 0 {
					t.Errorf("%v: remaining TTL %d", res.Status, left)
				}
				if len(acquired.GetHolders()) != len(res.GetHolders()) || acquired.GetHolders()[1].GetHoldId() != res.GetHolders()[1].GetHoldId() {
					t.Errorf("%v: holders %v", res.Status, acquired.GetHolders())
				}
			}
		})
	}
}
