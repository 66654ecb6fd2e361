package fsm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// tokenRecord returns a token as a backup has it.
func tokenRecord(secret, name string, ends int64) *wire.TokenRecord {
	sum := secretHash(secret)
	return &wire.TokenRecord{Sha256: sum, Info: &wire.TokenInfo{Id: tokenID(sum), Name: name, CreatedBy: "cn:ann", CreatedUnixMs: 7, EndsUnixMs: ends}}
}

// tokenRecords returns so many tokens, ordered by id.
func tokenRecords(n int) (tokens []*wire.TokenRecord) {
	for i := range n {
		tokens = append(tokens, tokenRecord(fmt.Sprint(i), "ann", 0))
	}
	slices.SortFunc(tokens, func(a, b *wire.TokenRecord) int { return strings.Compare(a.Info.Id, b.Info.Id) })
	return tokens
}

var longIdentity = strings.Repeat("i", 256)

// tokensOfABackup are changes of a backup that has three tokens and a policy.
var tokensOfABackup = map[string]struct {
	change func(op *wire.RestoreBackup)
	want   string // "" if the backup is accepted
}{
	"as they are":             {func(*wire.RestoreBackup) {}, ""},
	"none":                    {func(op *wire.RestoreBackup) { op.Tokens = nil }, ""},
	"as many as there may be": {func(op *wire.RestoreBackup) { op.Tokens = tokenRecords(1_000) }, ""},
	"one more":                {func(op *wire.RestoreBackup) { op.Tokens = tokenRecords(1_001) }, "1001 tokens, at most 1000"},
	"out of order":            {func(op *wire.RestoreBackup) { slices.Reverse(op.Tokens) }, "is out of order"},
	"one twice":               {func(op *wire.RestoreBackup) { op.Tokens[1] = op.Tokens[0] }, "is out of order"},
	"a missing token":         {func(op *wire.RestoreBackup) { op.Tokens[1] = nil }, "its id is not that of its SHA-256"},
	"without info":            {func(op *wire.RestoreBackup) { op.Tokens[1].Info = nil }, "its id is not that of its SHA-256"},
	"the id of another":       {func(op *wire.RestoreBackup) { op.Tokens[0].Info.Id = op.Tokens[1].Info.Id }, "its id is not that of its SHA-256"},
	"a longer id":             {func(op *wire.RestoreBackup) { op.Tokens[1].Info.Id += "0" }, "its id is not that of its SHA-256"},
	"an upper-case id":        {func(op *wire.RestoreBackup) { op.Tokens[2].Info.Id = strings.ToUpper(op.Tokens[2].Info.Id) }, "its id is not that of its SHA-256"},
	"no hash":                 {func(op *wire.RestoreBackup) { op.Tokens[1].Sha256 = nil }, "its id is not that of its SHA-256"},
	"a short hash":            {func(op *wire.RestoreBackup) { op.Tokens[1].Sha256 = op.Tokens[1].Sha256[:31] }, "its id is not that of its SHA-256"},
	"a long hash":             {func(op *wire.RestoreBackup) { op.Tokens[1].Sha256 = append(op.Tokens[1].Sha256, 0) }, "its id is not that of its SHA-256"},
	"no name":                 {func(op *wire.RestoreBackup) { op.Tokens[1].Info.Name = "" }, "the identity is empty"},
	"the longest name":        {func(op *wire.RestoreBackup) { op.Tokens[1].Info.Name = longIdentity }, ""},
	"a longer name":           {func(op *wire.RestoreBackup) { op.Tokens[1].Info.Name = longIdentity + "i" }, "the identity has 257 bytes"},
	"a name of a kind":        {func(op *wire.RestoreBackup) { op.Tokens[1].Info.Name = "cn:ann" }, "must not contain ':' or '*'"},
	"a pattern":               {func(op *wire.RestoreBackup) { op.Tokens[1].Info.Name = "a*" }, "must not contain ':' or '*'"},
	"a name of two lines":     {func(op *wire.RestoreBackup) { op.Tokens[1].Info.Name = "ann\nben" }, "control character"},
	"the longest creator":     {func(op *wire.RestoreBackup) { op.Tokens[1].Info.CreatedBy = longIdentity }, ""},
	"a longer creator":        {func(op *wire.RestoreBackup) { op.Tokens[1].Info.CreatedBy = longIdentity + "i" }, "created_by has 257 bytes"},
	"an unreadable creator":   {func(op *wire.RestoreBackup) { op.Tokens[1].Info.CreatedBy = "\x00" }, "created_by has the control character"},
	"the last end":            {func(op *wire.RestoreBackup) { op.Tokens[1].Info.EndsUnixMs = maxWallMs }, ""},
	"a later end":             {func(op *wire.RestoreBackup) { op.Tokens[1].Info.EndsUnixMs = maxWallMs + 1 }, "ends_unix_ms"},
	"a negative end":          {func(op *wire.RestoreBackup) { op.Tokens[1].Info.EndsUnixMs = -1 }, "ends_unix_ms"},
	"an invalid policy":       {func(op *wire.RestoreBackup) { op.Policy.Bindings[0].Roles[0] = "chief" }, `there is no role "chief"`},
	"a policy of nobody":      {func(op *wire.RestoreBackup) { op.Policy.Bindings = nil }, "nobody could change the policy afterwards"},
	"an administrator that may have a certificate": {func(op *wire.RestoreBackup) {
		op.Policy = &wire.Policy{Bindings: []*wire.Binding{{Identity: "eve", Roles: []string{"admin"}}}}
	}, ""},
	"tokens without a policy": {func(op *wire.RestoreBackup) { op.Policy = nil; slices.Reverse(op.Tokens) }, "is out of order"},
}

// TestTokensOfABackup changes one property of the tokens of a backup at a time. What is refused is refused on arrival
// and when it is applied, and changes nothing.
func TestTokensOfABackup(t *testing.T) {
	for what, c := range tokensOfABackup {
		op := &wire.RestoreBackup{Lineage: "l", Reason: "r", ClusterId: "c", Policy: bindings("ann", "user"), Tokens: []*wire.TokenRecord{
			tokenRecord("t1", "ann", 0), tokenRecord("t2", "ben", 9_000), tokenRecord("t3", "eve", 9_000),
		}}
		slices.SortFunc(op.Tokens, func(a, b *wire.TokenRecord) int { return strings.Compare(a.Info.Id, b.Info.Id) })
		c.change(op)
		cmd := &wire.Command{Op: &wire.Command_RestoreBackup{RestoreBackup: op}}
		refusal := Validate(cmd, DefaultSettings())
		m := bootstrapped(t)
		before := snapshotOf(t, m)
		applied := applyOne(t, m, proto.CloneOf(cmd)).Results[0]
		switch {
		case c.want == "" && (refusal != nil || applied.Status != wire.Status_OK):
			t.Errorf("%s: %v, then %v", what, refusal, applied)
		case c.want == "" && op.Policy != nil && len(m.Access().Tokens()) != len(op.Tokens):
			t.Errorf("%s: %d tokens", what, len(m.Access().Tokens()))
		case c.want == "":
			if err := m.Check(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			restored(t, snapshotOf(t, m))
		case refusal.GetStatus() != wire.Status_INVALID_ARGUMENT || !strings.Contains(refusal.Message, c.want) || applied.Message != refusal.Message:
			t.Errorf("%s: %v, then %v; want %q", what, refusal, applied, c.want)
		case m.Access().policy != nil || len(m.Access().tokens) > 0 || m.Lineage() != "" || len(before) != len(snapshotOf(t, m)):
			t.Errorf("%s: it was refused, and changed something", what)
		}
	}
}

// TestLargestAccessFitsIntoARestore builds the largest policy and tokens together with the largest audit log.
func TestLargestAccessFitsIntoARestore(t *testing.T) {
	op := &wire.RestoreBackup{Lineage: "l", Reason: "r", Policy: bindings(), Backup: &wire.Backup{ClusterId: strings.Repeat("c", 512)}}
	for i := 0; proto.Size(op.Policy) < rights.MaxPolicyBytes-300; i++ {
		op.Policy.Bindings = append(op.Policy.Bindings, &wire.Binding{Identity: fmt.Sprintf("%0256d", i), Roles: []string{"user"}})
	}
	op.Tokens = tokenRecords(1_000)
	for _, token := range op.Tokens {
		token.Info.Name, token.Info.CreatedBy = strings.Repeat("n", 256), strings.Repeat("c", 256)
		token.Info.CreatedUnixMs, token.Info.EndsUnixMs = maxWallMs, maxWallMs
	}
	for i := range maxRestoredAudit {
		op.Audit = append(op.Audit, &wire.AuditRecord{Id: uint64(i) + 1, Action: wire.AuditRecord_REVOKE, Reason: strings.Repeat("r", 1_024)})
	}
	op.Audit = RestorableAudit(op.Audit)
	cmd := &wire.Command{Op: &wire.Command_RestoreBackup{RestoreBackup: op}}
	if refusal := Validate(cmd, DefaultSettings()); refusal != nil {
		t.Fatal(refusal)
	}
	if refusal := ValidateSize(cmd, proto.Size(cmd), DefaultSettings()); refusal != nil {
		t.Error(refusal)
	}
}

// ofAccess returns commands that change the policy and the tokens, for a machine whose policy root may change.
func ofAccess(m *Machine) []*wire.Command {
	policy, revision := m.Access().Policy()
	if policy = proto.CloneOf(policy); policy == nil {
		policy = bindings("ann", "user")
	}
	return []*wire.Command{
		asCaller("root", createToken("another", "ann", 0)),
		asCaller("ann", createToken("denied", "ann", 0)),
		asCaller("root", &wire.Command{Op: &wire.Command_RevokeToken{RevokeToken: &wire.RevokeToken{TokenId: tokenID(secretHash("t1")), CloseSessions: true, Reason: "r"}}}),
		asCaller("root", &wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: policy, ExpectedRevision: revision, Reason: "r", CloseSessions: true}}}),
		asCaller("root", &wire.Command{Op: &wire.Command_ForceClose{ForceClose: &wire.ForceClose{Identity: "ann", Reason: "r"}}}),
		asCaller("root", &wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: bindings(), ExpectedRevision: m.Revision() + 4, Reason: "r"}}}),
	}
}

// strangeAccess returns commands with missing parts, and with numbers at the limits of their ranges.
func strangeAccess() []*wire.Command {
	const most = 1<<64 - 1
	strange := &wire.Policy{
		Roles: []*wire.Role{{Name: "r", Cluster: []wire.Verb{-1 << 31, 1<<31 - 1}, Locks: []*wire.LockRule{
			{Prefix: "/", Verbs: []wire.Verb{-1}}, {Name: "a", Prefix: "/"}, {},
		}}, {}},
		Bindings: []*wire.Binding{{Identity: "***", Roles: []string{"", "r"}}, {}},
	}
	return []*wire.Command{
		{Op: &wire.Command_SetPolicy{}},
		{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: strange, ExpectedRevision: most, Reason: "r"}}},
		{Op: &wire.Command_CreateToken{}},
		createToken("x", "ann", 1<<63-1),
		createToken("x", "ann", -1<<63),
		{Op: &wire.Command_RevokeToken{}},
		{Op: &wire.Command_RevokeToken{RevokeToken: &wire.RevokeToken{TokenId: strings.Repeat("f", 12), CloseSessions: true, Reason: "r"}}},
		{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{Lineage: "l", Reason: "r", ClusterId: "c", Policy: strange, Tokens: []*wire.TokenRecord{{}}}}},
		{Caller: &wire.Caller{Identity: "two\nlines"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Reason: "r"}}},
	}
}

func editAccess(edit func(*Access)) func(*Machine) {
	return func(m *Machine) {
		next := *m.Access()
		next.tokens = slices.Clone(next.tokens)
		edit(&next)
		m.state.access = &next
	}
}

func editAccount(name string, edit func(*account)) func(*Machine) {
	return func(m *Machine) { damage(&m.accounts, name, edit) }
}

var brokenAccess = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"no access", func(m *Machine) { m.state.access = nil }, ""},
	{"a policy of now", editAccess(func(a *Access) { a.revision = 13 }), ""},
	{"a policy to come", editAccess(func(a *Access) { a.revision = 14 }), "a policy of revision 14 of 13"},
	{"a policy that was never set", editAccess(func(a *Access) { a.revision = 0 }), "a policy of revision 0"},
	{"a policy without its index", editAccess(func(a *Access) { a.rights = nil }), "a policy of revision 13"},
	{"an index without its policy", editAccess(func(a *Access) { a.policy = nil }), "a policy of revision 13"},
	{"a removed policy", editAccess(func(a *Access) { a.policy, a.rights, a.certified = nil, nil, nil }), ""},
	{"an invalid policy", editAccess(func(a *Access) { a.policy = &wire.Policy{Bindings: []*wire.Binding{{}}} }), "the identity is empty"},
	{"a policy that nobody can change", editAccess(func(a *Access) { a.policy = &wire.Policy{} }), "nobody could change the policy"},
	{"a certificate of an administrator", editAccess(func(a *Access) { a.certified = []string{"root"} }), ""},
	{"a certificate twice", editAccess(func(a *Access) { a.certified = []string{"root", "root"} }), `"root" has used a certificate, but is out of order`},
	{"a certificate of another", editAccess(func(a *Access) { a.certified = []string{"ben"} }), `"ben" has used a certificate, but`},
	{"tokens out of order", editAccess(func(a *Access) { slices.Reverse(a.tokens) }), "is out of order"},
	{"a token of another id", editAccess(func(a *Access) { a.tokens[0] = &wire.TokenRecord{Sha256: a.tokens[1].Sha256, Info: a.tokens[0].Info} }), "its id is not that"},
	{"a session not counted", editAccount("ann", func(a *account) { a.used.Sessions = 1 }), `identity "ann" has {Sessions:2 `},
	{"an account of nobody", func(m *Machine) { m.accounts.put(&account{name: "dan", used: Used{Sessions: 1}}) }, "3 identities have sessions, 4 have accounts"},
	{"an account that is gone", func(m *Machine) { m.accounts.delete("ben") }, "3 identities have sessions, 2 have accounts"},
	{"an account of somebody else", func(m *Machine) { m.accounts.delete("ben"); m.accounts.put(&account{name: "dan"}) }, `identity "dan" has {Sessions:0 `},
	{"rights of an older policy", editAccount("cid", func(a *account) { a.known = 4 }), ""},
	{"rights that the policy does not give", editAccount("cid", func(a *account) { a.known, a.grants = 13, nil }), `identity "cid" has other rights`},
}
