package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// usual are the roles that exist in every policy.
var usual = []*wire.Role{
	{Name: "reader", Locks: []*wire.LockRule{{Prefix: "/", Verbs: []wire.Verb{wire.Verb_READ}}}},
	{Name: "user", Locks: []*wire.LockRule{{Prefix: "/", Verbs: []wire.Verb{wire.Verb_READ, wire.Verb_LOCK}}}},
	{
		Name: "operator", Locks: []*wire.LockRule{{Prefix: "/", Verbs: []wire.Verb{wire.Verb_READ, wire.Verb_OPERATE}}},
		Cluster: []wire.Verb{wire.Verb_AUDIT, wire.Verb_BACKUP, wire.Verb_MEMBERS},
	},
	{
		Name: "admin", Locks: []*wire.LockRule{{Prefix: "/", Verbs: []wire.Verb{wire.Verb_READ, wire.Verb_LOCK, wire.Verb_OPERATE}}},
		Cluster: []wire.Verb{wire.Verb_AUDIT, wire.Verb_BACKUP, wire.Verb_MEMBERS, wire.Verb_RESTORE, wire.Verb_POLICY},
	},
}

// rolesOf returns the roles that a policy gives to an identity. A command that nobody sent has none.
func rolesOf(p *wire.Policy, who string) []*wire.Role {
	var found []*wire.Role
	for _, b := range p.GetBindings() {
		if who != "" && alike(b.Identity, who) {
			found = append(found, named(p, b.Roles)...)
		}
	}
	return found
}

func named(p *wire.Policy, names []string) []*wire.Role {
	var found []*wire.Role
	for _, role := range slices.Concat(usual, p.GetRoles()) {
		if slices.Contains(names, role.GetName()) {
			found = append(found, role)
		}
	}
	return found
}

// alike reports whether a text fits a pattern, whose stars stand for any bytes.
func alike(pattern, text string) bool {
	if pattern == "" {
		return text == ""
	}
	if pattern[0] == '*' {
		return alike(pattern[1:], text) || text != "" && alike(pattern, text[1:])
	}
	return text != "" && pattern[0] == text[0] && alike(pattern[1:], text[1:])
}

// concerns reports whether a rule is about the lock of that name.
func concerns(rule *wire.LockRule, lock string) bool {
	if rule.Name != "" {
		return rule.Name == lock
	}
	if rule.Prefix == "/" {
		return true
	}
	for part := lock; part != ""; { // the lock's parents, from the closest one on
		part = part[:max(0, strings.LastIndexByte(part, '/'))]
		if part+"/" == rule.Prefix {
			return true
		}
	}
	return false
}

// May reports whether an identity has a verb on a lock.
func (d *Model) May(who string, v wire.Verb, lock string) bool {
	return d.Policy == nil || slices.ContainsFunc(rolesOf(d.Policy, who), func(role *wire.Role) bool {
		return slices.ContainsFunc(role.Locks, func(rule *wire.LockRule) bool { return concerns(rule, lock) && slices.Contains(rule.Verbs, v) })
	})
}

// mayAll reports whether an identity has a verb on all locks, those that do not exist included.
func (d *Model) mayAll(who string, v wire.Verb) bool { return d.May(who, v, "\x00") }

// mayAny reports whether there is a lock on which an identity has a verb.
func (d *Model) mayAny(who string, v wire.Verb) bool {
	return d.Policy == nil || slices.ContainsFunc(rolesOf(d.Policy, who), func(role *wire.Role) bool {
		return slices.ContainsFunc(role.Locks, func(rule *wire.LockRule) bool { return slices.Contains(rule.Verbs, v) })
	})
}

// mayRule reports whether an identity has a verb on the cluster.
func (d *Model) mayRule(who string, v wire.Verb) bool {
	return d.Policy == nil || slices.ContainsFunc(rolesOf(d.Policy, who), func(role *wire.Role) bool { return slices.Contains(role.Cluster, v) })
}

// mayOn reports whether an identity has a verb on every lock of a claim.
func (d *Model) mayOn(who string, v wire.Verb, c *Claim) bool {
	return !slices.ContainsFunc(c.Locks, func(l *wire.LockRequest) bool { return !d.May(who, v, l.Name) })
}

// noticed reports whether the caller may know of a claim, which is its own or on a lock that it may read.
func (d *Model) noticed(c *Claim) bool {
	if s := d.Session(c.Session); s != nil && s.Identity == d.who() {
		return true
	}
	return slices.ContainsFunc(c.Locks, func(l *wire.LockRequest) bool { return d.May(d.who(), wire.Verb_READ, l.Name) })
}

// unless is the refusal of what the caller may not do: absent unless it has seen what that is about.
func (d *Model) unless(seen bool, absent wire.Status_Code) wire.Status_Code {
	if seen {
		return wire.Status_PERMISSION_DENIED
	}
	return absent
}

// who is the identity of the caller of the command.
func (d *Model) who() string { return d.caller.GetIdentity() }

// forbids reports whether a request of a session needs a right that its identity does not have.
func (d *Model) forbids(s *Session, cmd *wire.Command) bool {
	var hold uint64
	switch op := cmd.Op.(type) {
	case *wire.Command_AcquireCached:
		return !d.May(s.Identity, wire.Verb_LOCK, op.AcquireCached.Acquire.Locks[0].Name)
	case *wire.Command_Acquire:
		return slices.ContainsFunc(op.Acquire.Locks, func(l *wire.LockRequest) bool { return !d.May(s.Identity, wire.Verb_LOCK, l.Name) })
	case *wire.Command_Upgrade:
		hold = op.Upgrade.HoldId
	case *wire.Command_Extend:
		hold = op.Extend.HoldId
	case *wire.Command_SetValue:
		hold = op.SetValue.HoldId
	}
	c := d.Claim(hold)
	return c != nil && c.Session == s.ID && !d.mayOn(s.Identity, wire.Verb_LOCK, c)
}

// ungoverned reports whether a command of an operator needs a verb on the cluster that its caller does not have.
func (d *Model) ungoverned(cmd *wire.Command) bool {
	if cmd.Node != "" {
		return false
	}
	verb := wire.Verb_POLICY
	switch op := cmd.Op.(type) {
	case *wire.Command_SetPolicy, *wire.Command_CreateToken, *wire.Command_RevokeToken:
	case *wire.Command_RestoreBackup:
		verb = wire.Verb_RESTORE
	case *wire.Command_RecordAct:
		if op.RecordAct.Outcome != wire.Status_UNSPECIFIED {
			return false
		}
		if verb = wire.Verb_MEMBERS; op.RecordAct.Action == wire.AuditRecord_SAVE_SNAPSHOT {
			verb = wire.Verb_BACKUP
		}
	default:
		return false
	}
	return !d.mayRule(d.who(), verb)
}

// mayClose reports whether the caller may end a session.
func (d *Model) mayClose(s *Session) bool {
	claims := d.Of(s.ID)
	if len(claims) == 0 {
		return d.mayAll(d.who(), wire.Verb_OPERATE)
	}
	return !slices.ContainsFunc(claims, func(c *Claim) bool { return !d.mayOn(d.who(), wire.Verb_OPERATE, c) })
}

// administrators returns the identities that may change a policy by a binding of their own, sorted.
func administrators(p *wire.Policy) (names []string) {
	for _, b := range p.GetBindings() {
		rules := slices.ContainsFunc(named(p, b.Roles), func(role *wire.Role) bool { return slices.Contains(role.Cluster, wire.Verb_POLICY) })
		if rules && !strings.Contains(b.Identity, "*") {
			names = append(names, b.Identity)
		}
	}
	slices.Sort(names)
	return names
}

// certifiedBy returns the administrators of a policy that had or have shown a certificate.
func (d *Model) certifiedBy(p *wire.Policy) []string {
	return slices.DeleteFunc(administrators(p), func(name string) bool {
		shows := name == d.who() && strings.HasPrefix(d.caller.GetCredential(), "certificate ")
		return !shows && !slices.Contains(d.Certified, name)
	})
}

// lasting returns the administrators of a policy with a token that does not end, or a known certificate.
func (d *Model) lasting(p *wire.Policy, tokens []*wire.TokenRecord) []string {
	certified := d.certifiedBy(p)
	return slices.DeleteFunc(administrators(p), func(name string) bool {
		lasts := func(t *wire.TokenRecord) bool { return t.Info.Name == name && t.Info.EndsUnixMs == 0 }
		return !slices.Contains(certified, name) && !slices.ContainsFunc(tokens, lasts)
	})
}

// governable reports whether a policy has an administrator that may have a lasting credential.
func (d *Model) governable(p *wire.Policy) bool {
	if p == nil {
		return true
	}
	lasting := d.lasting(p, d.Tokens)
	return slices.ContainsFunc(administrators(p), func(name string) bool {
		has := func(t *wire.TokenRecord) bool { return t.Info.Name == name }
		return slices.Contains(lasting, name) || !slices.ContainsFunc(d.Tokens, has)
	})
}

// locksOut reports whether a change takes the last lasting credential that is known.
func (d *Model) locksOut(p *wire.Policy, tokens []*wire.TokenRecord) bool {
	return p != nil && len(d.lasting(d.Policy, d.Tokens)) > 0 && len(d.lasting(p, tokens)) == 0
}

func (d *Model) setPolicy(op *wire.SetPolicy) *wire.Result {
	if op.ExpectedRevision != d.PolicyRevision || !d.governable(op.Policy) || d.locksOut(op.Policy, d.Tokens) {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	before := d.Policy
	d.Certified = d.certifiedBy(op.Policy)
	d.Policy, d.PolicyRevision = op.Policy, d.Revision
	d.record(wire.AuditRecord_SET_POLICY, op, &wire.AuditRecord{})
	d.closeAll(op.Reason, func(who string) bool { return op.CloseSessions && deprived(before, op.Policy, who) })
	return says(wire.Status_OK)
}

func (d *Model) tokenAt(id string) int {
	return slices.IndexFunc(d.Tokens, func(t *wire.TokenRecord) bool { return t.Info.Id == id })
}

func (d *Model) createToken(op *wire.CreateToken) *wire.Result {
	id := fmt.Sprintf("%x", op.Sha256)[:12]
	if at := d.tokenAt(id); at >= 0 {
		if known := d.Tokens[at]; string(known.Sha256) == string(op.Sha256) && known.Info.Name == op.Name {
			return says(wire.Status_OK)
		}
		return says(wire.Status_FAILED_PRECONDITION)
	}
	if len(d.Tokens) == 1000 {
		return says(wire.Status_RESOURCE_EXHAUSTED)
	}
	tokens := append(slices.Clone(d.Tokens), &wire.TokenRecord{Sha256: op.Sha256, Info: &wire.TokenInfo{
		Id: id, Name: op.Name, CreatedBy: d.who(), CreatedUnixMs: d.wall, EndsUnixMs: op.EndsUnixMs,
	}})
	slices.SortFunc(tokens, func(a, b *wire.TokenRecord) int { return cmp.Compare(a.Info.Id, b.Info.Id) })
	d.Tokens, d.Certified = tokens, d.certifiedBy(d.Policy)
	d.record(wire.AuditRecord_CREATE_TOKEN, op, &wire.AuditRecord{TokenId: id, Identity: op.Name})
	return says(wire.Status_OK)
}

func (d *Model) revokeToken(op *wire.RevokeToken) *wire.Result {
	at := d.tokenAt(op.TokenId)
	if at < 0 {
		return says(wire.Status_NOT_FOUND)
	}
	name, rest := d.Tokens[at].Info.Name, slices.Delete(slices.Clone(d.Tokens), at, at+1)
	if d.locksOut(d.Policy, rest) {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	d.Tokens, d.Certified = rest, d.certifiedBy(d.Policy)
	d.record(wire.AuditRecord_REVOKE_TOKEN, op, &wire.AuditRecord{TokenId: op.TokenId, Identity: name})
	d.closeAll(op.Reason, func(identity string) bool { return op.CloseSessions && identity == name })
	return says(wire.Status_OK)
}

// closeAll ends the sessions of the identities that fit.
func (d *Model) closeAll(reason string, fits func(identity string) bool) {
	for _, s := range slices.Clone(d.Live) {
		if fits(s.Identity) {
			d.finish(s, wire.Event_SESSION_CLOSED, reason)
		}
	}
	d.grantReady()
}

// deprived reports whether a policy gives an identity nothing, or lacks a binding that was the identity's before.
func deprived(before, after *wire.Policy, who string) bool {
	kept := map[string]bool{}
	for _, b := range after.GetBindings() {
		kept[b.Identity] = true
	}
	gone := func(b *wire.Binding) bool { return who != "" && alike(b.Identity, who) && !kept[b.Identity] }
	gives := func(role *wire.Role) bool { return len(role.Locks)+len(role.Cluster) > 0 }
	return slices.ContainsFunc(before.GetBindings(), gone) || after != nil && !slices.ContainsFunc(rolesOf(after, who), gives)
}

func validClose(op *wire.ForceClose) bool {
	return op.GetIdentity() == "" || op.SessionId == 0 && validIdentity(op.Identity)
}

// takeOver takes over the policy and the tokens of a backup if there is no policy.
func (d *Model) takeOver(op *wire.RestoreBackup) {
	if d.Policy == nil && op.Policy != nil {
		d.Policy, d.Tokens, d.PolicyRevision, d.Certified = op.Policy, op.Tokens, d.Revision, nil
	}
}

// validPolicy reports whether a policy can be set.
func validPolicy(p *wire.Policy) bool {
	if proto.Size(p) > 262_144 || len(p.GetRoles()) > 1000 || len(p.GetBindings()) > 10_000 {
		return false
	}
	names := map[string]bool{"reader": true, "user": true, "operator": true, "admin": true}
	for _, role := range p.GetRoles() {
		if names[role.GetName()] || !validRole(role) {
			return false
		}
		names[role.Name] = true
	}
	bound := map[string]bool{}
	for _, b := range p.GetBindings() {
		if bound[b.GetIdentity()] || !validIdentity(b.GetIdentity()) || len(b.Roles) == 0 {
			return false
		}
		bound[b.Identity] = true
		if slices.ContainsFunc(b.Roles, func(name string) bool { return !names[name] }) {
			return false
		}
	}
	return validQuotas(p.GetQuotas())
}

func validRole(role *wire.Role) bool {
	odd := func(r rune) bool { return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') }
	if n := len(role.GetName()); n < 1 || n > 64 || strings.ContainsFunc(role.Name, odd) || role.Name[0] == '-' {
		return false
	}
	for _, rule := range role.Locks {
		name, place := rule.GetName(), rule.GetName()+rule.GetPrefix()
		if name != "" && rule.Prefix != "" || len(rule.GetVerbs()) == 0 || name == "" && !strings.HasSuffix(place, "/") {
			return false
		}
		if name == "" {
			place = strings.TrimSuffix(place, "/")
		}
		if !validName(place) && rule.Prefix != "/" || slices.ContainsFunc(rule.Verbs, func(v wire.Verb) bool { return v < 1 || v > 3 }) {
			return false
		}
	}
	return !slices.ContainsFunc(role.Cluster, func(v wire.Verb) bool { return v < 8 || v > 12 })
}

func validIdentity(text string) bool { return text != "" && readable(text, 256) }

func validToken(sum []byte, name string, ends int64) bool {
	return validHash(sum) && !strings.ContainsAny(name, ":*") && validIdentity(name) && ends >= 0 && ends < 253_402_300_800_000
}

// validAccess reports whether a backup may contain this policy and these tokens.
func validAccess(p *wire.Policy, tokens []*wire.TokenRecord) bool {
	last := ""
	for _, t := range tokens {
		i := t.GetInfo()
		if !validToken(t.GetSha256(), i.GetName(), i.GetEndsUnixMs()) || i.Id != fmt.Sprintf("%x", t.Sha256)[:12] || i.Id <= last || !readable(i.CreatedBy, 256) {
			return false
		}
		last = i.Id
	}
	return len(tokens) <= 1000 && validPolicy(p) && (p == nil || len(administrators(p)) > 0)
}

func validCaller(c *wire.Caller) bool {
	return readable(c.GetIdentity(), 256) && readable(c.GetCredential(), 256) && readable(c.GetAddress(), 256)
}
