package rights

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Roles are the roles of the table. Each is bound to the identity of its name. Other has all verbs on locks, but not on
// the one that the requests are about.
var Roles = []string{"other", "reader", "user", "operator", "admin"}

// Lock is the lock that the requests are about.
const Lock = "team/a"

var (
	everybody = []string{"other", "reader", "user", "operator", "admin"}
	lockers   = []string{"user", "admin"}
	// holders may send a request about a hold. Whose it is, the state machine decides.
	holders   = []string{"other", "user", "admin"}
	readers   = []string{"reader", "user", "operator", "admin"}
	operators = []string{"operator", "admin"}
	// strangers are operators too, to which what is not theirs does not exist.
	strangers = []string{"other", "operator", "admin"}
	admins    = []string{"admin"}
)

// Allowed are the roles that may send a request, by the name of its message.
var Allowed = map[string][]string{
	"OpenRequest": {"other", "user", "admin"},

	// Giving up what one has, and what concerns only oneself.
	"AttachRequest": everybody, "CloseSession": everybody, "CloseRequest": everybody, "Heartbeat": everybody,
	"HeartbeatRequest": everybody, "Acknowledge": everybody, "Release": everybody, "ReleaseRequest": everybody,
	"ReleaseLeaseRequest": everybody, "Cancel": everybody, "Downgrade": everybody, "DowngradeRequest": everybody,
	"EndRequest": everybody, "WhoAmIRequest": everybody, "GetQuotaRequest": everybody,

	"Acquire": lockers, "AcquireCached": lockers, "AcquireRequest": lockers, "AcquireLeaseRequest": lockers, "Upgrade": holders, "UpgradeRequest": holders,
	"Extend": holders, "ExtendRequest": holders, "ExtendLeaseRequest": holders, "SetValue": holders, "SetValueRequest": holders,

	// The answers contain only what the caller may read.
	"ListLocksRequest": everybody, "ListDeadlocksRequest": everybody, "WatchRequest": everybody, "ListSessionsRequest": everybody,
	"StatusRequest": everybody, "ListContendedRequest": everybody, "GetSessionRequest": everybody, "ListSamplesRequest": everybody,

	"GetLockRequest": readers, "VerifyTokenRequest": readers,

	"ForceRelease": strangers, "Revoke": strangers, "SkipDelay": operators, "Resize": operators, "ForceClose": strangers,
	"ListAuditRequest": operators, "SaveSnapshotRequest": operators, "AddMemberRequest": operators, "RemoveMemberRequest": operators,
	"SetDrainedRequest": operators, "TransferLeadershipRequest": operators, "AcknowledgeAlarmsRequest": operators,

	"RestoreRequest": admins, "GetPolicyRequest": admins, "SetPolicy": admins, "TestPolicyRequest": admins,
	"CreateTokenRequest": admins, "ListTokensRequest": admins, "RevokeToken": admins,
}

// Requests returns an example of every request of the schema, by the name of its message: those of frames and those of
// procedures. Requests about locks are about Lock, and those about holds are about the one with that id.
func Requests(hold uint64) map[string]proto.Message {
	all := map[string]proto.Message{}
	add := func(of protoreflect.MessageDescriptor) {
		kind, err := protoregistry.GlobalTypes.FindMessageByName(of.FullName())
		if err != nil {
			panic(err)
		}
		all[string(of.Name())] = example(kind.New().Interface(), hold)
	}
	bodies := (&wire.Request{}).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	for i := range bodies.Len() {
		add(bodies.Get(i).Message())
	}
	services := wire.File_quorumlock_v1_service_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			add(services.Get(i).Methods().Get(j).Input())
		}
	}
	return all
}

// example sets what the right of a request depends on.
func example(m proto.Message, hold uint64) proto.Message {
	set := func(name protoreflect.Name, value protoreflect.Value) {
		if field := m.ProtoReflect().Descriptor().Fields().ByName(name); field != nil {
			m.ProtoReflect().Set(field, value)
		}
	}
	set("hold_id", protoreflect.ValueOfUint64(hold))
	set("reason", protoreflect.ValueOfString("test"))
	locks := []*wire.LockRequest{{Name: Lock}}
	switch m := m.(type) {
	case *wire.Acquire:
		m.Locks = locks
	case *wire.AcquireCached:
		m.Acquire, m.Tokens, m.IdleMs = &wire.Acquire{Locks: locks}, 1, 1_000
	case *wire.AcquireLeaseRequest:
		m.Secret, m.Acquire = []byte("0123456789abcdef"), &wire.Acquire{Locks: locks}
	case *wire.WatchRequest, *wire.CreateTokenRequest, *wire.SetPolicy:
	case *wire.ForceClose:
		m.SessionId = 1
	case *wire.GetSessionRequest:
		m.SessionId = 1
	default:
		if field := m.ProtoReflect().Descriptor().Fields().ByName("name"); field != nil {
			set("name", protoreflect.ValueOfString(Lock))
		}
	}
	return m
}

// Secret is that of the cluster's session.
const Secret = "the secret of user"

// Cluster is a state machine with a policy, in which a session of the identity user holds Lock.
type Cluster struct {
	Machine *fsm.Machine
	// Session is the session, Hold and Token are those of its hold, which its request 1 has acquired.
	Session, Hold, Token uint64
	// Tokens prove the identities, by role.
	Tokens map[string]string
}

// New returns a cluster in which every role is bound to the identity of its name.
func New(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{Machine: fsm.New(fsm.Level), Tokens: map[string]string{}}
	c.Must(t, &wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c1", Settings: fsm.DefaultSettings()}}})
	c.Must(t, &wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: 1, LeaderId: "n1"}}})
	hash, err := wire.HashSecret([]byte(Secret))
	if err != nil {
		t.Fatal(err)
	}
	opened := c.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "user"}, Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: hash[:]}}})
	held := c.Must(t, &wire.Command{SessionId: opened.GetSession().GetSessionId(), Seq: 1, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
		Locks: []*wire.LockRequest{{Name: Lock}},
	}}})
	c.Session, c.Hold, c.Token = opened.GetSession().GetSessionId(), held.GetHoldId(), held.GetToken()
	for _, role := range Roles {
		c.Tokens[role] = identity.NewToken()
		sum, err := identity.HashToken(c.Tokens[role])
		if err != nil {
			t.Fatal(err)
		}
		c.Must(t, &wire.Command{Op: &wire.Command_CreateToken{CreateToken: &wire.CreateToken{Sha256: sum, Name: role, Reason: "test"}}})
	}
	c.Must(t, &wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: Policy(), Reason: "test"}}})
	return c
}

// Policy returns the policy of the table.
func Policy() *wire.Policy {
	p := &wire.Policy{Roles: []*wire.Role{{Name: "other", Locks: []*wire.LockRule{{
		Prefix: "else/", Verbs: []wire.Verb{wire.Verb_READ, wire.Verb_LOCK, wire.Verb_OPERATE},
	}}}}}
	for _, role := range Roles {
		p.Bindings = append(p.Bindings, &wire.Binding{Identity: role, Roles: []string{role}})
	}
	return p
}

// Must applies a command that has to succeed.
func (c *Cluster) Must(t testing.TB, cmd *wire.Command) *wire.Result {
	t.Helper()
	res := c.Apply(t, cmd)
	switch res.GetStatus() {
	case wire.Status_OK, wire.Status_GRANTED, wire.Status_QUEUED:
		return res
	}
	t.Fatalf("%v: %v", cmd, res)
	return nil
}

// Apply applies a command.
func (c *Cluster) Apply(t testing.TB, cmd *wire.Command) *wire.Result {
	t.Helper()
	data, err := proto.Marshal(&wire.Entry{Level: fsm.Level, WallUnixMs: 1_700_000_000_000, Commands: []*wire.Command{cmd}})
	if err != nil {
		t.Fatal(err)
	}
	applied, err := c.Machine.Apply(data)
	if err != nil {
		t.Fatal(err)
	}
	return proto.CloneOf(applied.Results[0])
}

// Access implements access.Source, like View.
func (c *Cluster) Access() *fsm.Access { return c.Machine.Access() }

// CatchUp implements access.Source. The cluster has no followers.
func (c *Cluster) CatchUp() bool { return false }

// View implements access.Source.
func (c *Cluster) View(f func(*fsm.Machine)) { f(c.Machine) }
