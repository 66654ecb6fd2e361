package fsm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorumlock/quorumlock/test/model"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// walkIdentities are the callers of guarded walks. The first one mostly keeps the policy.
var walkIdentities = []string{"root", "ann", "ben", "cn:app"}

// command returns the next command. In a guarded walk, commands have callers, and the policy and the tokens change.
func (w *walker) command() *wire.Command {
	if !w.guarded {
		return w.ordinary()
	}
	cmd := w.access()
	if cmd == nil {
		cmd = w.ordinary()
	}
	w.attribute(cmd)
	return cmd
}

// access returns a command that changes the policy or the tokens, or mostly nil. The policy changes more often while
// somebody waits, so that rights are withdrawn between a request and its turn.
func (w *walker) access() *wire.Command {
	setPolicy := func(p *wire.Policy) *wire.Command {
		return &wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{
			Policy: p, ExpectedRevision: w.about(w.d.PolicyRevision), Reason: w.reason(), Operator: w.who(), CloseSessions: w.d.PolicyRevision%8 == 3,
		}}}
	}
	switch {
	case w.any((*model.Claim).Waiting) && w.one(8):
		return setPolicy(w.withdrawal())
	case w.d.Policy == nil && w.one(6), w.one(30):
		return setPolicy(w.policy())
	case w.any(w.doomed) && w.one(3):
		return w.makeWay()
	case w.any(w.doomed) && w.one(5):
		return &wire.Command{Op: &wire.Command_ForceClose{ForceClose: &wire.ForceClose{SessionId: w.some(w.doomed).Session, Reason: "because"}}}
	case w.any(w.ofLease) && w.one(6):
		return w.lease()
	case w.one(15):
		return &wire.Command{Op: &wire.Command_CreateToken{CreateToken: w.createToken()}}
	case w.one(20):
		return &wire.Command{Op: &wire.Command_RevokeToken{RevokeToken: w.revokeToken()}}
	}
	return nil
}

// ofLease reports whether a claim is of a lease with a secret.
func (w *walker) ofLease(c *model.Claim) bool {
	s := w.d.Session(c.Session)
	return s != nil && s.Leased && s.Hash != ""
}

// doomed reports whether a claim waits without the right to one of its locks.
func (w *walker) doomed(c *model.Claim) bool { return c.Waiting() && lacks(w.d, c) }

// makeWay ends a hold or a lock-delay that somebody waits for without the right.
func (w *walker) makeWay() *wire.Command {
	waiting := w.some(w.doomed)
	inTheWay := w.some(func(c *model.Claim) bool {
		return c != waiting && c.Token != 0 && slices.ContainsFunc(c.Locks, func(l *wire.LockRequest) bool {
			return slices.ContainsFunc(waiting.Locks, func(of *wire.LockRequest) bool { return of.Name == l.Name })
		})
	})
	if inTheWay.Over {
		return &wire.Command{Op: &wire.Command_EndDelay{EndDelay: &wire.EndDelay{HoldId: inTheWay.ID, Term: w.d.Term, Generation: 1}}}
	}
	return &wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: inTheWay.ID, Token: inTheWay.Token, Reason: "because"}}}
}

// withdrawal returns a policy under which everybody may use all locks, except for the identity of somebody who waits:
// it may use and operate all but one of the locks of the wait.
func (w *walker) withdrawal() *wire.Policy {
	waits := (*model.Claim).Waiting
	if w.any((*model.Claim).Upgrading) && w.one(2) {
		waits = (*model.Claim).Upgrading
	}
	if leased := func(c *model.Claim) bool { return c.Queued() && w.ofLease(c) }; w.any(leased) {
		waits = leased
	}
	c := w.some(waits)
	missing, role := c.Locks[w.roll(len(c.Locks))].Name, &wire.Role{Name: "rest"}
	for _, name := range walkNames {
		if name != missing {
			role.Locks = append(role.Locks, &wire.LockRule{Name: name, Verbs: []wire.Verb{wire.Verb_LOCK, wire.Verb_OPERATE}})
		}
	}
	p := &wire.Policy{Roles: []*wire.Role{role}, Bindings: []*wire.Binding{{Identity: "root", Roles: []string{"admin"}}}}
	for _, identity := range walkIdentities[1:] {
		b := &wire.Binding{Identity: identity, Roles: []string{"user"}}
		if s := w.d.Session(c.Session); s != nil && s.Identity == identity {
			b.Roles[0] = "rest"
		}
		p.Bindings = append(p.Bindings, b)
	}
	return p
}

// policy returns a policy that mostly lets most identities do most things, or nil, or one that is invalid.
func (w *walker) policy() *wire.Policy {
	if w.one(16) {
		return nil
	}
	p := &wire.Policy{}
	for i := range 1 + w.roll(2) {
		role := &wire.Role{Name: fmt.Sprint("r", i)}
		for range w.roll(4) {
			role.Locks = append(role.Locks, w.lockRule())
		}
		if w.one(3) {
			role.Cluster = append(role.Cluster, wire.Verb(8+w.roll(5)))
		}
		p.Roles = append(p.Roles, role)
	}
	bind := func(identity string, roles ...string) {
		p.Bindings = append(p.Bindings, &wire.Binding{Identity: identity, Roles: roles})
	}
	if administrator := []string{"root", "root", "root", "root", "root", "ro*", "ann"}[w.roll(7)]; !w.one(12) {
		bind(administrator, "admin")
	}
	for _, identity := range walkIdentities[2:] {
		switch w.roll(8) {
		case 0, 1, 2:
			bind(identity, "user")
		case 3:
			bind(identity, "r0", "operator")
		case 4, 5:
			bind(identity, fmt.Sprint("r", w.roll(len(p.Roles))))
		}
	}
	if w.one(2) {
		bind([]string{"*", "a*", "*n", "cn:*"}[w.roll(4)], []string{"user", "reader", "r0"}[w.roll(3)])
	}
	for w.one(4) && len(p.Quotas) < 4 {
		w.bound(p)
	}
	if w.one(25) {
		w.spoilPolicy(p)
	}
	return p
}

// bound adds a quota to a policy, for an identity, a pattern or a prefix that has none yet.
func (w *walker) bound(p *wire.Policy) {
	q := &wire.Quota{Identity: []string{"ann", "ben", "*", "b*", "cn:*"}[w.roll(5)]}
	if w.one(3) {
		q = &wire.Quota{Prefix: []string{"/", "b/"}[w.roll(2)], Claims: uint64(2 + w.roll(6))}
	}
	if slices.ContainsFunc(p.Quotas, func(o *wire.Quota) bool { return o.Identity == q.Identity && o.Prefix == q.Prefix }) {
		return
	}
	if q.Prefix == "" {
		q.Sessions, q.Claims, q.Bytes = uint64(w.roll(4)), uint64(w.roll(6)), uint64(w.roll(2)*w.roll(2)*(3_000+w.roll(10_000)))
		q.Watches = uint64(w.roll(2))
		q.Connections = 1 - min(1, q.Sessions+q.Claims+q.Bytes+q.Watches)
	}
	p.Quotas = append(p.Quotas, q)
}

// spoilQuota adds an invalid quota to a policy.
func (w *walker) spoilQuota(p *wire.Policy) {
	bad := [][]*wire.Quota{
		{{Identity: "dan"}},
		{{Claims: 1}},
		{{Identity: "dan", Prefix: "b/", Claims: 1}},
		{{Prefix: "b", Claims: 1}},
		{{Prefix: "b/", Claims: 1, Sessions: 1}},
		{{Prefix: "b/", Watches: 1}},
		{{Identity: "dan", Claims: 1}, {Identity: "dan", Bytes: 1}},
	}
	p.Quotas = append(p.Quotas, bad[w.roll(len(bad))]...)
}

func (w *walker) lockRule() *wire.LockRule {
	rule := &wire.LockRule{}
	switch w.roll(4) {
	case 0:
		rule.Prefix = []string{"/", "b/"}[w.roll(2)]
	default:
		rule.Name = walkNames[w.roll(len(walkNames))]
	}
	rule.Verbs = [][]wire.Verb{{wire.Verb_LOCK}, {wire.Verb_LOCK, wire.Verb_OPERATE}, {wire.Verb_OPERATE}, {wire.Verb_READ}}[min(w.roll(4), w.roll(4))]
	return rule
}

// spoilPolicy makes a policy invalid.
func (w *walker) spoilPolicy(p *wire.Policy) {
	role := p.Roles[0]
	if w.one(3) {
		w.spoilQuota(p)
		return
	}
	switch w.roll(10) {
	case 0:
		role.Name = "R"
	case 1:
		role.Name = "user"
	case 2:
		role.Locks = append(role.Locks, &wire.LockRule{Prefix: "b", Verbs: []wire.Verb{wire.Verb_LOCK}})
	case 3:
		role.Locks = append(role.Locks, &wire.LockRule{Name: "a", Prefix: "b/", Verbs: []wire.Verb{wire.Verb_LOCK}})
	case 4:
		role.Locks = append(role.Locks, &wire.LockRule{Name: "a//b", Verbs: []wire.Verb{wire.Verb_LOCK}})
	case 5:
		role.Locks = append(role.Locks, &wire.LockRule{Name: "a", Verbs: []wire.Verb{wire.Verb_AUDIT}})
	case 6:
		role.Cluster = append(role.Cluster, wire.Verb(w.roll(40)-20))
	case 7:
		p.Bindings = append(p.Bindings, &wire.Binding{Identity: "dan"})
	case 8:
		p.Bindings = append(p.Bindings, &wire.Binding{Identity: "dan", Roles: []string{"chief"}})
	default:
		p.Bindings = slices.Repeat([]*wire.Binding{{Identity: strings.Repeat("i", 256+w.roll(2)), Roles: []string{"admin"}}}, 1+w.roll(2))
	}
}

func (w *walker) createToken() *wire.CreateToken {
	op := &wire.CreateToken{
		Sha256: secretHash(fmt.Sprint("token ", w.roll(6))), Name: walkIdentities[min(w.roll(3), w.roll(3))], EndsUnixMs: int64(w.roll(2) * 1_000),
		Reason: w.reason(), Operator: w.who(),
	}
	switch w.roll(30) {
	case 0:
		op.Name = "cn:app"
	case 1:
		op.Sha256 = op.Sha256[1:]
	case 2:
		op.EndsUnixMs = -1
	}
	return op
}

func (w *walker) revokeToken() *wire.RevokeToken {
	op := &wire.RevokeToken{TokenId: "0123456789ab", CloseSessions: w.one(2), Reason: w.reason(), Operator: w.who()}
	if n := len(w.d.Tokens); n > 0 && !w.one(8) {
		token := w.d.Tokens[w.roll(n)]
		if token.Info.EndsUnixMs != 0 || token.Info.Name != "root" { // rather one that keeps the policy
			token = w.d.Tokens[w.roll(n)]
		}
		op.TokenId = token.Info.Id
	}
	if w.one(20) {
		op.TokenId = strings.Repeat("f", 13)
	}
	return op
}

// attribute adds the caller to a command that has one: mostly the identity that may send it.
func (w *walker) attribute(cmd *wire.Command) {
	who, others := "root", 5
	switch op := cmd.Op.(type) {
	case *wire.Command_OpenSession:
		who = w.opener(op.OpenSession.SecretHash)
	case *wire.Command_OpenLease:
		who = w.opener(op.OpenLease.SecretHash)
	case *wire.Command_ChangeKeys:
		who = w.keyHolder(op.ChangeKeys)
	case *wire.Command_ExtendLease:
		who, others = w.opener(op.ExtendLease.SecretHash), 2
	case *wire.Command_ConfirmLease:
		who, others = w.opener(op.ConfirmLease.SecretHash), 2
	case *wire.Command_ReleaseLease:
		who, others = w.opener(op.ReleaseLease.SecretHash), 2
	case *wire.Command_AttachSession:
		who = w.opener(op.AttachSession.SecretHash)
	case *wire.Command_RestoreBackup:
		w.fillAccess(op.RestoreBackup)
	case *wire.Command_ForceClose:
		if s := w.d.Session(op.ForceClose.SessionId); s != nil && w.one(2) {
			who = s.Identity // which may operate some of its own locks
		}
	case *wire.Command_ForceRelease, *wire.Command_Revoke, *wire.Command_SkipDelay, *wire.Command_Resize,
		*wire.Command_RecordAct, *wire.Command_SetPolicy, *wire.Command_CreateToken, *wire.Command_RevokeToken:
	default:
		return
	}
	if w.one(others) {
		who = walkIdentities[w.roll(len(walkIdentities))]
	}
	if w.one(40) {
		return
	}
	cmd.Caller = &wire.Caller{Identity: who, Credential: []string{"certificate 01", "token 01"}[w.d.Revision%2], Address: "10.0.0.1:7"}
	if w.one(150) {
		cmd.Caller.Identity = strings.Repeat("i", 257)
	}
	if w.one(150) {
		cmd.Caller.Credential = "two\nlines"
	}
}

// opener returns the identity of the session with that secret, or any if there is none.
func (w *walker) opener(hash []byte) string {
	for _, s := range w.d.Live {
		if s.Hash == string(hash) {
			return s.Identity
		}
	}
	return walkIdentities[1+w.roll(3)]
}

// fillAccess adds the policy and the tokens of a backup, sometimes invalid ones.
func (w *walker) fillAccess(op *wire.RestoreBackup) {
	if w.one(3) {
		return
	}
	op.Policy = w.policy()
	for i := range w.roll(4) {
		sum := secretHash(fmt.Sprint("token ", i))
		op.Tokens = append(op.Tokens, &wire.TokenRecord{Sha256: sum, Info: &wire.TokenInfo{
			Id: fmt.Sprintf("%x", sum[:6]), Name: walkIdentities[w.roll(3)], EndsUnixMs: int64(w.roll(2) * 1_000), CreatedBy: "lost",
		}})
	}
	slices.SortFunc(op.Tokens, func(a, b *wire.TokenRecord) int { return strings.Compare(a.Info.Id, b.Info.Id) })
	if len(op.Tokens) > 1 && w.one(12) {
		slices.Reverse(op.Tokens)
	}
}

// guardedOutcomes are the outcomes that guarded walks must have, and how often in ten thousand commands.
var guardedOutcomes = map[string]int{
	"Acquire PERMISSION_DENIED": 50, "Upgrade PERMISSION_DENIED": 1, "SetValue PERMISSION_DENIED": 1, "OpenSession PERMISSION_DENIED": 20,
	"OpenLease PERMISSION_DENIED": 2, "ForceRelease PERMISSION_DENIED": 1, "Revoke PERMISSION_DENIED": 1, "Resize PERMISSION_DENIED": 1,
	"RestoreBackup PERMISSION_DENIED": 1, "SetPolicy OK": 20, "SetPolicy PERMISSION_DENIED": 10, "SetPolicy FAILED_PRECONDITION": 5,
	"SetPolicy INVALID_ARGUMENT": 5, "CreateToken OK": 5, "CreateToken PERMISSION_DENIED": 5, "CreateToken FAILED_PRECONDITION": 1,
	"CreateToken INVALID_ARGUMENT": 2, "RevokeToken OK": 2, "RevokeToken NOT_FOUND": 5, "RevokeToken PERMISSION_DENIED": 3,
}

// guardedRarities are the outcomes that they must have in a thousand sequences.
var guardedRarities = map[string]int{
	"Extend PERMISSION_DENIED": 2, "ExtendLease PERMISSION_DENIED": 2, "ReleaseLease PERMISSION_DENIED": 3, "ConfirmLease PERMISSION_DENIED": 2, "SkipDelay PERMISSION_DENIED": 2,
	"ForceClose PERMISSION_DENIED": 10, "RecordAct PERMISSION_DENIED": 2,
}

// denied reports whether an event is the end of a wait for want of a right.
func denied(e *wire.Event) bool {
	return e.Type == wire.Event_CANCELLED && e.Status == wire.Status_PERMISSION_DENIED
}

// denies returns a rare step: a wait that fits is cancelled for want of a right.
func denies(fit func(h *happening, e *wire.Event) bool) func(*happening) bool {
	return func(h *happening) bool {
		return slices.ContainsFunc(h.p.d.News, func(e *wire.Event) bool { return denied(e) && fit(h, e) })
	}
}

// quotaRefuses returns a rare step: a request is refused with a message that begins so.
func quotaRefuses(message string) func(*happening) bool {
	return func(h *happening) bool { return strings.HasPrefix(h.p.d.Heard.GetMessage(), message) }
}

// lacks reports whether the identity of a claim has no right to one of its locks.
func lacks(d *model.Model, c *model.Claim) bool {
	s := d.Session(c.Session)
	return s != nil && slices.ContainsFunc(c.Locks, func(l *wire.LockRequest) bool { return !d.May(s.Identity, wire.Verb_LOCK, l.Name) })
}

// guardedStates are the rare states of guarded walks, of which there are a quarter as many as of others.
var guardedStates = []rareState{
	{"a policy and tokens", 50, func(p *pair) bool { return p.d.Policy != nil && len(p.d.Tokens) > 0 }},
	{"a policy that was removed", 20, func(p *pair) bool { return p.d.Policy == nil && p.d.PolicyRevision > 0 }},
	{"a wait without its right", 50, anyClaim(func(p *pair, c *model.Claim) bool { return c.Queued() && lacks(p.d, c) })},
	{"a wait for several without its right", 8, anyClaim(func(p *pair, c *model.Claim) bool { return c.Queued() && len(c.Locks) > 1 && lacks(p.d, c) })},
	{"an upgrade without its right", 3, anyClaim(func(p *pair, c *model.Claim) bool { return c.Upgrading() && lacks(p.d, c) })},
	{"a lease without its right", 4, anyClaim(func(p *pair, c *model.Claim) bool { return ofLease(p, c) && lacks(p.d, c) })},
	{"a hold without its right", 50, anyClaim(func(p *pair, c *model.Claim) bool { return c.Holds() && lacks(p.d, c) })},
}

// guardedSteps are the rare steps of guarded walks.
var guardedSteps = []rareStep{
	{"a wait cancelled for want of a right", 20, denies(func(*happening, *wire.Event) bool { return true })},
	{"a wait for several cancelled for want of a right", 3, denies(func(_ *happening, e *wire.Event) bool { return len(e.Locks) > 1 })},
	{"a wait for permits cancelled for want of a right", 5, denies(func(_ *happening, e *wire.Event) bool { return e.Permits > 0 })},
	{"an upgrade cancelled for want of a right", 1, denies(func(_ *happening, e *wire.Event) bool { return e.Upgrade })},
	{"a lease cancelled for want of a right", 1, denies(func(h *happening, e *wire.Event) bool { return h.p.d.Session(e.SessionId) == nil })},
	{"a grant behind a wait cancelled for want of a right", 5, func(h *happening) bool {
		return slices.ContainsFunc(h.p.d.News, denied) && slices.ContainsFunc(h.p.d.News, func(e *wire.Event) bool { return e.Waited })
	}},
	{"a session is not closed with the right to a part of its locks", 1, func(h *happening) bool {
		op := h.cmd.GetForceClose()
		return op != nil && h.answer.Status == wire.Status_PERMISSION_DENIED && slices.ContainsFunc(h.p.d.Of(op.SessionId), func(c *model.Claim) bool {
			return !slices.ContainsFunc(c.Locks, func(l *wire.LockRequest) bool {
				return !h.p.d.May(h.cmd.Caller.GetIdentity(), wire.Verb_OPERATE, l.Name)
			})
		})
	}},
	{"a policy that nobody could change", 10, func(h *happening) bool {
		op := h.cmd.GetSetPolicy()
		return op != nil && h.answer.Status == wire.Status_FAILED_PRECONDITION && op.ExpectedRevision == h.p.d.PolicyRevision
	}},
	{"a token that keeps the policy", 1, func(h *happening) bool {
		return h.cmd.GetRevokeToken() != nil && h.answer.Status == wire.Status_FAILED_PRECONDITION
	}},
	{"sessions closed with a token", 2, func(h *happening) bool {
		return h.cmd.GetRevokeToken() != nil && slices.ContainsFunc(h.p.d.News, func(e *wire.Event) bool { return e.Type == wire.Event_SESSION_CLOSED })
	}},
	{"sessions closed with a policy", 2, func(h *happening) bool {
		return h.cmd.GetSetPolicy() != nil && slices.ContainsFunc(h.p.d.News, func(e *wire.Event) bool { return e.Type == wire.Event_SESSION_CLOSED })
	}},
	{"the sessions of an identity closed", 2, func(h *happening) bool {
		return h.cmd.GetForceClose().GetIdentity() != "" && slices.ContainsFunc(h.p.d.News, func(e *wire.Event) bool { return e.Type == wire.Event_SESSION_CLOSED })
	}},
	{"a restore takes over a policy", 2, func(h *happening) bool {
		return h.cmd.GetRestoreBackup() != nil && h.answer.Status == wire.Status_OK && h.p.d.PolicyRevision == h.p.d.Revision
	}},
	{"a session refused by a quota", 5, quotaRefuses("quota sessions of")},
	{"a claim refused by a quota", 5, quotaRefuses("quota claims of")},
	{"units refused by a quota", 5, quotaRefuses("quota bytes of")},
	{"a claim refused by the quota of a prefix", 4, quotaRefuses("quota claims below")},
	{"a restore keeps the policy", 2, func(h *happening) bool {
		op := h.cmd.GetRestoreBackup()
		return op.GetPolicy() != nil && h.answer.Status == wire.Status_OK && h.p.d.PolicyRevision != h.p.d.Revision
	}},
}
