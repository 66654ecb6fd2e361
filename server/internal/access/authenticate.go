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
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

var (
	// ErrUnauthenticated is returned for a caller whose certificate or token is not valid.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrNoRole is returned for an identity to which the policy gives no role.
	ErrNoRole = errors.New("no role")
)

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

// Authenticate verifies a caller and returns it. cluster is the cluster that certificates must name, empty if any. It returns
// ErrUnauthenticated or ErrNoRole.
func Authenticate(source Source, cluster string, p Presented) (*Caller, error) {
	origin, err := verify(source.Access(), cluster, p)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnauthenticated, err)
		p.Denials.Refused(&wire.Caller{Address: p.Address}, err)
		return nil, err
	}
	c := newCaller(origin, source)
	c.denials = p.Denials
	if p.Certificate != nil && p.Origin == nil && p.Token == "" {
		c.until = p.Certificate.NotAfter
	}
	access := source.Access()
	c.checked.Store(&known{access, access.Rights().Grants(c.Identity())})
	if !c.checked.Load().grants.Any() {
		err := fmt.Errorf("%w: the policy gives %q none: ask for one whoever administers the cluster", ErrNoRole, c.Identity())
		p.Denials.Refused(origin, err)
		return nil, err
	}
	return c, nil
}

func verify(access *fsm.Access, cluster string, p Presented) (*wire.Caller, error) {
	switch {
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
		return nil, errors.New("the token is unknown: it was revoked, or never created in this cluster")
	}
	if err := ended(token, time.Now()); err != nil {
		return nil, err
	}
	return &wire.Caller{Identity: token.GetName(), Credential: tokenCredential + token.GetId(), Address: p.Address}, nil
}

func ended(token *wire.TokenInfo, now time.Time) error {
	if end := token.GetEndsUnixMs(); end != 0 && now.UnixMilli() >= end {
		return fmt.Errorf("the token %s ended at %s: create another one", token.GetId(), time.UnixMilli(end).UTC().Format(time.RFC3339))
	}
	return nil
}

// Recheck returns an error if the caller may not stay connected: ErrUnauthenticated if its token was revoked or has
// ended, or its certificate has expired, ErrNoRole if it has lost rights since the last call or since it was authenticated. A caller that has other
// rights left may connect again. The first policy takes rights from everybody and ends only the connections of callers
// without any role.
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
		return nil
	}
	after := access.Rights().Grants(c.Identity())
	c.checked.Store(&known{access, after})
	if after.Covers(before.grants) || before.grants == nil && after.Any() {
		return nil
	}
	return fmt.Errorf("%w: the policy has taken rights away from %q", ErrNoRole, c.Identity())
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
