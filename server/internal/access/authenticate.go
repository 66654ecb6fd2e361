package access

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

var (
	// ErrUnauthenticated is returned for a caller whose certificate or token is not valid.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrNoRole is returned for an identity to which the policy gives no role, and that has no sessions.
	ErrNoRole = errors.New("no role")
)

// errUnknownToken is the error for a token that the state does not have.
var errUnknownToken = errors.New("the token is unknown: it was revoked, or never created in this cluster")

// Presented is what a caller presented, apart from what it says about itself.
type Presented struct {
	// Certificate is the verified client certificate; nil if there is none.
	Certificate *x509.Certificate
	// Token is the bearer token, which counts before the certificate.
	Token string
	// Secure is set if nobody else can have read the token: with TLS, and on loopback.
	Secure bool
	// Origin is set if another node has verified the caller and this connection is that node's.
	Origin *wire.Caller
	// Address is the caller's address.
	Address string
	// Denials gets the refusal of the caller, and later those of its requests.
	Denials Denials
}

// tokenCredential begins the credential of a caller with a token.
const tokenCredential = "token "

// Authenticate verifies a caller and returns it. cluster is the cluster that certificates must name, empty if any. It
// returns ErrUnauthenticated or ErrNoRole. An identity without a role is accepted while it has sessions or leases, so
// that it can give up what it has. A follower catches up before it refuses what the replicated state does not have.
func Authenticate(source Source, cluster string, p Presented) (*Caller, error) {
	origin, c, err := authenticate(source, cluster, p)
	if (errors.Is(err, errUnknownToken) || errors.Is(err, ErrNoRole)) && source.CatchUp() {
		origin, c, err = authenticate(source, cluster, p)
	}
	if err != nil {
		p.Denials.Refused(origin, err)
		return nil, err
	}
	return c, nil
}

func authenticate(source Source, cluster string, p Presented) (*wire.Caller, *Caller, error) {
	origin, err := verify(source.Access(), cluster, p)
	if err != nil {
		return &wire.Caller{Address: p.Address}, nil, fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	}
	c := newCaller(origin, source)
	c.denials = p.Denials
	if p.Certificate != nil && p.Origin == nil && p.Token == "" {
		c.until = p.Certificate.NotAfter
	}
	access := source.Access()
	c.checked.Store(&known{access, access.Rights().Grants(c.Identity())})
	return origin, c, c.belongs()
}

// belongs returns ErrNoRole for an identity that has neither a role nor a session.
func (c *Caller) belongs() error {
	if c.Grants().Any() || c.hasSessions() {
		return nil
	}
	return c.noRole()
}

// RequireRole returns ErrNoRole unless the caller has a role. A port calls it for what has no message to check.
func (c *Caller) RequireRole() error {
	if c.Grants().Any() || c.source.CatchUp() && c.Grants().Any() {
		return nil
	}
	err := c.noRole()
	c.denials.Refused(c.origin, err)
	return err
}

func (c *Caller) noRole() error {
	return fmt.Errorf("%w: the policy gives %q none", ErrNoRole, c.Identity())
}

// hasSessions reports whether the identity has open sessions or leases.
func (c *Caller) hasSessions() (has bool) {
	c.source.View(func(m *fsm.Machine) { has = m.HasSessions(c.Identity()) })
	return has
}

func verify(access *fsm.Access, cluster string, p Presented) (*wire.Caller, error) {
	switch {
	case rights.IsNode(p.Origin.GetIdentity()):
		return nil, fmt.Errorf("%q is the identity of a node: no caller has it", p.Origin.Identity)
	case p.Origin != nil:
		return p.Origin, nil
	case p.Token != "":
		return verifyToken(access, p)
	case p.Certificate == nil:
		return &wire.Caller{Identity: identity.Anonymous, Address: p.Address}, nil
	}
	origin, err := identity.FromCertificate(p.Certificate, cluster)
	if err != nil {
		return nil, err
	}
	origin.Address = p.Address
	return origin, nil
}

func verifyToken(access *fsm.Access, p Presented) (*wire.Caller, error) {
	if !p.Secure {
		return nil, errors.New("a token is accepted over TLS or from loopback only: connect with TLS, and revoke this token, which others may have read")
	}
	sum, err := identity.HashToken(p.Token)
	if err != nil {
		return nil, err
	}
	token := access.Token(sum)
	if token == nil {
		return nil, errUnknownToken
	}
	if err := ended(token, time.Now()); err != nil {
		return nil, err
	}
	return &wire.Caller{Identity: token.GetName(), Credential: tokenCredential + token.GetId(), Address: p.Address}, nil
}

func ended(token *wire.TokenInfo, now time.Time) error {
	if end := token.GetEndsUnixMs(); end != 0 && now.UnixMilli() >= end {
		return fmt.Errorf("the token %s expired at %s: create another one", token.GetId(), time.UnixMilli(end).UTC().Format(time.RFC3339))
	}
	return nil
}

// Recheck returns an error if the caller may not stay connected: ErrUnauthenticated if its token was revoked or has
// ended, or its certificate has expired, ErrNoRole if it has lost rights since the last call or since it was
// authenticated. A caller that has other rights, or sessions, left may connect again. The first policy takes rights
// from everybody and ends only the connections of callers without any role.
func (c *Caller) Recheck(now time.Time) error {
	access := c.source.Access()
	if !c.until.IsZero() && now.After(c.until) {
		return fmt.Errorf("%w: the certificate was valid until %s", ErrUnauthenticated, c.until.UTC().Format(time.RFC3339))
	}
	if id, ok := strings.CutPrefix(c.origin.GetCredential(), tokenCredential); ok {
		token := access.TokenByID(id)
		if token == nil || token.GetName() != c.Identity() {
			return fmt.Errorf("%w: the token %s was revoked", ErrUnauthenticated, id)
		}
		if err := ended(token, now); err != nil {
			return fmt.Errorf("%w: %w", ErrUnauthenticated, err)
		}
	}
	before := c.checked.Load()
	if before.access == access || c.node {
		return c.recheckSessions()
	}
	after := access.Rights().Grants(c.Identity())
	c.checked.Store(&known{access, after})
	if after.Covers(before.grants) || before.grants == nil && after.Any() {
		return nil
	}
	return fmt.Errorf("%w: the policy has taken rights away from %q", ErrNoRole, c.Identity())
}

// recheckSessions returns ErrNoRole if a caller without a role had no session at this call and at the one before. The
// answer that its last session was closed may be on its way at the first.
func (c *Caller) recheckSessions() error {
	err := c.belongs()
	if before := c.alone.Swap(err != nil); before {
		return err
	}
	return nil
}

// IsLoopback reports whether an address, host:port, is one of this machine's own.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || host == "localhost"
}
