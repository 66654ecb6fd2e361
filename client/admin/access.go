package admin

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Verb is what a role allows.
type Verb int32

// The verbs on locks, in rules.
const (
	// VerbRead: see the lock with its holders, its queue and its events.
	VerbRead Verb = 1
	// VerbLock: acquire the lock, extend the hold, change its value, verify its token.
	VerbLock Verb = 2
	// VerbOperate: revoke and force-release holds, close their sessions, skip lock-delays, resize semaphores.
	VerbOperate Verb = 3
)

// The verbs on the cluster.
const (
	// VerbAudit: read the audit log.
	VerbAudit Verb = 8
	// VerbBackup: save a backup, which contains everything.
	VerbBackup Verb = 9
	// VerbMembers: change members and leader, and acknowledge alarms.
	VerbMembers Verb = 10
	// VerbRestore: restore a backup over the cluster.
	VerbRestore Verb = 11
	// VerbPolicy: read and change the policy and the tokens.
	VerbPolicy Verb = 12
)

// String returns the name of the verb in upper case, such as READ.
func (v Verb) String() string { return wire.Verb(v).String() }

// Policy gives roles to identities. The roles reader, user, operator and admin exist in every policy.
type Policy struct {
	Roles    []Role
	Bindings []Binding
	Quotas   []Quota
}

// Quota bounds what one identity, or each that matches a pattern, may use, or the claims below a prefix. 0 means no limit.
type Quota struct {
	// Identity may be a pattern, in which '*' stands for any characters.
	Identity string
	// Prefix ends with '/', instead of Identity. It allows only Claims.
	Prefix string
	// Sessions, Claims (lock names in holds and waits) and Bytes (units of the replicated state) are those of the
	// cluster; Watches, Connections and RequestsPerSecond are counted by each node.
	Sessions, Claims, Bytes                 uint64
	Watches, Connections, RequestsPerSecond uint64
}

// Role is a set of rights.
type Role struct {
	// Name has lower-case letters, digits and '-'.
	Name  string
	Locks []LockRule
	// Cluster are verbs on the cluster.
	Cluster []Verb
}

// LockRule allows verbs on one lock, or on all locks with a prefix.
type LockRule struct {
	// Prefix ends with '/'; "/" means all locks.
	Prefix string
	// Name is one lock, instead of Prefix.
	Name  string
	Verbs []Verb
}

// Binding gives roles to one identity, or to all that match a pattern.
type Binding struct {
	// Identity may be a pattern, in which '*' stands for any characters.
	Identity string
	Roles    []string
}

// Caller is the verified origin of a request.
type Caller struct {
	// Identity is a client's name, cn: and a common name, a SPIFFE id, or anonymous.
	Identity string
	// Credential is what the identity was verified with: certificate and its serial number, token and its id, or
	// empty.
	Credential string
	// Address is the one that the node saw.
	Address string
}

// Identity is who the cluster takes this client for.
type Identity struct {
	Caller Caller
	// Roles are those that the policy gives to the identity, including those from patterns.
	Roles []string
	// HasPolicy means that the cluster has a policy; without one, everything is allowed, and Locks and Cluster are empty.
	HasPolicy bool
	// Locks are what the roles allow on locks: one rule for each prefix or name.
	Locks []LockRule
	// Cluster are the verbs on the cluster that the roles allow.
	Cluster []Verb
}

// Token describes a token, which clients present instead of a certificate. The cluster does not know the token
// itself.
type Token struct {
	ID string
	// Name is the identity that the token proves.
	Name string
	// CreatedBy is the identity of the operator.
	CreatedBy string
	Created   time.Time
	// Ends is zero for a token that does not expire.
	Ends time.Time
}

// WhoAmI returns the identity of this client as the cluster has verified it.
func (c *Client) WhoAmI(ctx context.Context) (Identity, error) {
	who, err := c.calls.WhoAmI(ctx, &wire.WhoAmIRequest{})
	if err != nil {
		return Identity{}, err
	}
	return convert[Identity](who), nil
}

// Policy returns the policy, nil if the cluster has none, and the revision of its last change, for SetPolicy.
func (c *Client) Policy(ctx context.Context, opts ...ReadOption) (policy *Policy, revision uint64, err error) {
	answer, err := c.calls.GetPolicy(ctx, &wire.GetPolicyRequest{Stale: stale(opts)})
	if err != nil {
		return nil, 0, err
	}
	if answer.GetPolicy() != nil {
		found := convert[Policy](answer.GetPolicy())
		policy = &found
	}
	return policy, answer.GetRevision(), nil
}

// SetPolicy replaces the policy, or removes it if policy is nil, which allows everything to everybody. It returns
// client.ErrFailedPrecondition if the policy is not that of the expected revision any more, or if nobody could
// change the new one, and client.ErrInvalidArgument if the policy is not valid. Other errors are those of
// ForceRelease. With closeSessions, the sessions of identities end at once to which the new policy gives no role, or
// that lose a binding; otherwise they expire by their TTL.
func (c *Client) SetPolicy(ctx context.Context, policy *Policy, expectedRevision uint64, closeSessions bool, by By) error {
	_, err := c.calls.SetPolicy(ctx, &wire.SetPolicy{
		Policy: policy.encode(), ExpectedRevision: expectedRevision, CloseSessions: closeSessions, Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket,
	})
	return err
}

// PolicyTest is a question about a policy.
type PolicyTest struct {
	Identity string
	Verb     Verb
	// Lock is the name of the lock, for a verb on locks.
	Lock string
	// Policy is tested instead of the one of the cluster, unless it is nil.
	Policy *Policy
}

// TestPolicy reports whether an identity may do something, and the binding, role and rule that allow it, or what is
// missing.
func (c *Client) TestPolicy(ctx context.Context, test PolicyTest, opts ...ReadOption) (allowed bool, reason string, err error) {
	answer, err := c.calls.TestPolicy(ctx, &wire.TestPolicyRequest{
		Identity: test.Identity, Verb: wire.Verb(test.Verb), Lock: test.Lock, Policy: test.Policy.encode(), Stale: stale(opts),
	})
	return answer.GetAllowed(), answer.GetReason(), err
}

// CreateToken makes a token for an identity, which is a name without a colon. ttl is in whole milliseconds; 0 means
// that the token does not expire. The token itself is not stored anywhere: whoever has it has the identity. If ctx ends
// first, the error matches client.ErrUncertain: a token that nobody knows may exist, which Tokens shows.
func (c *Client) CreateToken(ctx context.Context, name string, ttl time.Duration, by By) (token string, about Token, err error) {
	if ttl < 0 {
		return "", Token{}, &client.StatusError{Status: client.StatusInvalidArgument, Message: "the TTL " + ttl.String() + " is negative: give 0 for a token that does not expire"}
	}
	token = identity.NewToken()
	answer, err := c.calls.CreateToken(ctx, &wire.CreateTokenRequest{
		Name: name, AuthToken: token, TtlMs: uint64(ttl.Milliseconds()), Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket,
	})
	if err != nil {
		return "", Token{}, err
	}
	return token, convert[Token](answer.GetToken()), nil
}

// Tokens returns the tokens, ordered by id.
func (c *Client) Tokens(ctx context.Context, opts ...ReadOption) ([]Token, error) {
	found, err := c.calls.ListTokens(ctx, &wire.ListTokensRequest{Stale: stale(opts)})
	return convertAll[Token](found.GetTokens()), err
}

// RevokeToken withdraws a token: its connections end within a second. Sessions that were opened with it expire by
// their TTL; with closeSessions, all sessions of its identity end at once. It returns client.ErrNotFound if there is
// no such token, and client.ErrFailedPrecondition if nobody could change the policy without it. Other errors are
// those of ForceRelease.
func (c *Client) RevokeToken(ctx context.Context, id string, closeSessions bool, by By) error {
	_, err := c.calls.RevokeToken(ctx, &wire.RevokeToken{TokenId: id, CloseSessions: closeSessions, Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket})
	return err
}

// encode converts the policy for a request. It returns nil for nil.
func (p *Policy) encode() *wire.Policy {
	if p == nil {
		return nil
	}
	out := &wire.Policy{}
	for _, r := range p.Roles {
		role := &wire.Role{Name: r.Name, Cluster: verbs(r.Cluster)}
		for _, l := range r.Locks {
			role.Locks = append(role.Locks, &wire.LockRule{Prefix: l.Prefix, Name: l.Name, Verbs: verbs(l.Verbs)})
		}
		out.Roles = append(out.Roles, role)
	}
	for _, q := range p.Quotas {
		out.Quotas = append(out.Quotas, &wire.Quota{
			Identity: q.Identity, Prefix: q.Prefix, Sessions: q.Sessions, Claims: q.Claims, Bytes: q.Bytes,
			Watches: q.Watches, Connections: q.Connections, RequestsPerSecond: q.RequestsPerSecond,
		})
	}
	for _, b := range p.Bindings {
		out.Bindings = append(out.Bindings, &wire.Binding{Identity: b.Identity, Roles: b.Roles})
	}
	return out
}

func verbs(list []Verb) (out []wire.Verb) {
	for _, v := range list {
		out = append(out, wire.Verb(v))
	}
	return out
}
