package fsm

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// callerOfLine returns the caller that a line names, or nil. It has a certificate, or NAME+token a token.
func callerOfLine(a args) *wire.Caller {
	if a.identity == "" {
		return nil
	}
	if name, ok := strings.CutSuffix(a.identity, "+token"); ok {
		return &wire.Caller{Identity: name, Credential: "token 01", Address: "10.0.0.1:7"}
	}
	return &wire.Caller{Identity: a.identity, Credential: "certificate 01", Address: "10.0.0.1:7"}
}

// accessCommand returns a command that changes the policy or the tokens. The name of a token is its secret.
func (s *script) accessCommand(a args) *wire.Command {
	reason, sum := a.pairs["reason"], secretHash(a.arg(0))
	switch a.verb {
	case "policy":
		_, revision := s.m.Access().Policy()
		return &wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{
			Policy: s.policy(a), ExpectedRevision: s.number(a, "expected", revision), Reason: reason, Operator: "op", CloseSessions: a.arg(0) == "close",
		}}}
	case "token":
		return &wire.Command{Op: &wire.Command_CreateToken{CreateToken: &wire.CreateToken{
			Sha256: sum, Name: a.pairs["name"], EndsUnixMs: int64(s.number(a, "ends", 0)), Reason: reason, Operator: "op",
		}}}
	case "revoke-token":
		return &wire.Command{Op: &wire.Command_RevokeToken{RevokeToken: &wire.RevokeToken{
			TokenId: tokenID(sum), CloseSessions: a.has("close"), Reason: reason, Operator: "op",
		}}}
	}
	s.t.Fatalf("operator: %s?", a.verb)
	return nil
}

// policy returns the policy of the bindings in a line, or nil if it has none. A binding is @IDENTITY=GRANT;GRANT, where
// a grant is a role that every policy has, or VERB,VERB:PLACE. The place is a prefix if it ends with '/', otherwise one
// lock, and the cluster if it is empty. "empty" stands for a policy without bindings. A quota is
// %IDENTITY=KIND:LIMIT;KIND:LIMIT, with a prefix instead of the identity if it ends with '/'.
func (s *script) policy(a args) *wire.Policy {
	p := &wire.Policy{}
	for _, key := range slices.Sorted(maps.Keys(a.pairs)) {
		if of, ok := strings.CutPrefix(key, "%"); ok {
			p.Quotas = append(p.Quotas, s.quota(of, a.pairs[key]))
		}
		identity, ok := strings.CutPrefix(key, "@")
		if !ok {
			continue
		}
		role := &wire.Role{Name: fmt.Sprint("role-", len(p.Bindings)+1)}
		b := &wire.Binding{Identity: identity}
		for grant := range strings.SplitSeq(a.pairs[key], ";") {
			verbs, place, ok := strings.Cut(grant, ":")
			if !ok {
				b.Roles = append(b.Roles, grant)
				continue
			}
			s.grant(role, verbs, place)
		}
		if len(role.Locks)+len(role.Cluster) > 0 {
			p.Roles, b.Roles = append(p.Roles, role), append(b.Roles, role.Name)
		}
		p.Bindings = append(p.Bindings, b)
	}
	if len(p.Bindings) == 0 && a.arg(0) != "empty" {
		return nil
	}
	return p
}

// grant adds verbs on a place to a role.
func (s *script) grant(role *wire.Role, verbs, place string) {
	var list []wire.Verb
	for verb := range strings.SplitSeq(verbs, ",") {
		v, ok := wire.Verb_value[verb]
		if !ok {
			s.t.Fatalf("there is no verb %q", verb)
		}
		list = append(list, wire.Verb(v))
	}
	switch {
	case place == "":
		role.Cluster = append(role.Cluster, list...)
	case strings.HasSuffix(place, "/"):
		role.Locks = append(role.Locks, &wire.LockRule{Prefix: place, Verbs: list})
	default:
		role.Locks = append(role.Locks, &wire.LockRule{Name: place, Verbs: list})
	}
}

func (s *script) quota(of, limits string) *wire.Quota {
	q := &wire.Quota{Identity: of}
	if strings.HasSuffix(of, "/") {
		q.Identity, q.Prefix = "", of
	}
	for limit := range strings.SplitSeq(limits, ";") {
		kind, number, _ := strings.Cut(limit, ":")
		n, err := strconv.ParseUint(number, 10, 64)
		f := q.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(kind))
		if err != nil || f == nil {
			s.t.Fatalf("%q is no limit", limit)
		}
		q.ProtoReflect().Set(f, protoreflect.ValueOfUint64(n))
	}
	return q
}

// showQuotas prints what each identity and the locks below each prefix use.
func (s *script) showQuotas() {
	s.m.EachPrefix(func(claims uint64, q *wire.Quota) { s.print("below %s: %d claims of %d", q.Prefix, claims, q.Claims) })
	s.m.EachAccount("", func(identity string, used Used, q *wire.Quota) bool {
		s.print("%s: %d sessions, %d claims, %d bytes%s", identity, used.Sessions, used.Claims, used.Bytes, after(", quota of ", q.GetIdentity()))
		return true
	})
}

// tokens returns the tokens of a backup: tokens=SECRET/NAME,SECRET/NAME/ends.
func (s *script) tokens(a args) (tokens []*wire.TokenRecord) {
	for _, text := range strings.FieldsFunc(a.pairs["tokens"], func(r rune) bool { return r == ',' }) {
		parts := strings.Split(text, "/")
		sum := secretHash(parts[0])
		info := &wire.TokenInfo{Id: tokenID(sum), Name: parts[1], CreatedBy: "lost", CreatedUnixMs: 3}
		if len(parts) > 2 {
			info.EndsUnixMs = 9_000
		}
		tokens = append(tokens, &wire.TokenRecord{Sha256: sum, Info: info})
	}
	slices.SortFunc(tokens, func(a, b *wire.TokenRecord) int { return strings.Compare(a.Info.Id, b.Info.Id) })
	return tokens
}

// lastActs prints the newest audit records.
func (s *script) lastActs(n int) {
	for _, r := range s.m.ListAudit(&wire.ListAuditRequest{PageSize: uint32(n)}).Records {
		text := fmt.Sprintf("%d. %v", r.Id, r.Action)
		for _, about := range []string{r.Lock, r.TokenId, r.Identity, r.Member} {
			text += after(" ", about)
		}
		if r.Caller != nil {
			text += fmt.Sprintf(" by %s, %s, from %s", r.Caller.Identity, r.Caller.Credential, r.Caller.Address)
		}
		s.print("%s%s", text, quoted(" ", r.Reason))
	}
}

// showAccess prints the policy's revision, the administrators with certificates and the tokens.
func (s *script) showAccess() {
	policy, revision := s.m.Access().Policy()
	s.print("%d bindings, changed at revision %d", len(policy.GetBindings()), revision)
	for _, name := range s.m.Access().Certified() {
		s.print("%s has a certificate", name)
	}
	for _, t := range s.m.Access().Tokens() {
		ends := ""
		if t.EndsUnixMs != 0 {
			ends = fmt.Sprint(", ends ", t.EndsUnixMs)
		}
		s.print("token %s of %s%s%s", t.Id, t.Name, after(", created by ", t.CreatedBy), ends)
	}
}
