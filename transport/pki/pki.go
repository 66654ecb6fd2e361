package pki

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/transport/identity"
)

var (
	// ErrExists is returned when a file that would be written exists already.
	ErrExists = errors.New("already exists")
	// ErrInvalid is returned for names that are not allowed in a certificate or a path.
	ErrInvalid = errors.New("invalid")
)

// Node is a member of the cluster.
type Node struct {
	ID string
	// Hosts are the names and IP addresses by which clients reach the node, without ports. Default:
	// localhost, 127.0.0.1 and ::1.
	Hosts []string
}

// Init creates an authority in dir, certificates for nodes and clients signed by it, and its list of revoked
// certificates, which is empty. It returns the paths written, in order, or ErrExists if dir contains any of them. If it
// returns an error, it leaves no files behind.
func Init(dir, cluster string, nodes []Node, clients []string, opts ...Option) ([]string, error) {
	s, err := newSettings(opts)
	if err == nil {
		err = check(cluster, nodes, clients)
	}
	if err != nil {
		return nil, err
	}
	w := &writer{}
	ca, err := newAuthority(cluster)
	if err == nil {
		err = w.pair(filepath.Join(dir, "ca"), ca)
	}
	if err == nil {
		err = w.emptyList(ca, CRLPath(dir))
	}
	if err == nil {
		err = s.issue(w, ca, dir, cluster, nodes, clients)
	}
	return w.finish(err)
}

// Extend adds certificates for more nodes and clients to those that Init created in dir, signed by the
// same authority.
func Extend(dir, cluster string, nodes []Node, clients []string, opts ...Option) ([]string, error) {
	s, err := newSettings(opts)
	if err == nil {
		err = check(cluster, nodes, clients)
	}
	if err != nil {
		return nil, err
	}
	ca, err := readAuthority(filepath.Join(dir, "ca"))
	if err != nil {
		return nil, err
	}
	w := &writer{}
	return w.finish(s.issue(w, ca, dir, cluster, nodes, clients))
}

// Option changes what is issued.
type Option func(*settings)

// settings are the values of options.
type settings struct {
	life time.Duration // 0: the default
}

// ValidFor sets how long what is issued is valid. By default, certificates are valid for two years and a revocation
// list as long as its authority. Nothing is valid for longer than the authority.
func ValidFor(life time.Duration) Option {
	return func(s *settings) { s.life = life }
}

func newSettings(opts []Option) (settings, error) {
	s := settings{life: certificateLife}
	for _, opt := range opts {
		opt(&s)
	}
	if s.life <= 0 || s.life > authorityLife {
		return s, fmt.Errorf("%w duration of %v: use 1 to %d days", ErrInvalid, s.life, authorityLife/day)
	}
	return s, nil
}

func (s settings) issue(w *writer, ca *pair, dir, cluster string, nodes []Node, clients []string) error {
	for _, n := range nodes {
		at := filepath.Join(dir, "nodes", n.ID)
		if err := s.sign(w, ca, filepath.Join(at, "peer"), peerCert(cluster, n.ID)); err != nil {
			return err
		}
		if err := s.sign(w, ca, filepath.Join(at, "server"), serverCert(n)); err != nil {
			return err
		}
	}
	for _, name := range clients {
		if err := s.sign(w, ca, filepath.Join(dir, "clients", name, "client"), clientCert(cluster, name)); err != nil {
			return err
		}
	}
	return nil
}

// plain matches names that need no escaping in a path, a URI or a log line.
var plain = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func check(cluster string, nodes []Node, clients []string) error {
	if err := checkNames("cluster", cluster); err != nil {
		return err
	}
	if strings.HasSuffix(cluster, ".") || strings.Contains(cluster, "..") {
		return fmt.Errorf("%w cluster name %q: certificates contain it as a host name, so no part between dots may be empty", ErrInvalid, cluster)
	}
	if err := checkNames("client", clients...); err != nil {
		return err
	}
	for _, name := range clients {
		if err := identity.ValidName(name); err != nil {
			return fmt.Errorf("%w client: %w", ErrInvalid, err)
		}
	}
	var ids []string
	for _, n := range nodes {
		ids = append(ids, n.ID)
		for _, host := range n.Hosts {
			if err := checkHost(host); err != nil {
				return fmt.Errorf("node %s: %w", n.ID, err)
			}
		}
	}
	return checkNames("node", ids...)
}

func checkNames(kind string, names ...string) error {
	seen := map[string]bool{}
	for _, name := range names {
		if !plain.MatchString(name) {
			return fmt.Errorf("%w %s name %q: use up to 63 letters, digits, '.', '_' and '-', beginning with a letter or digit", ErrInvalid, kind, name)
		}
		if seen[name] {
			return fmt.Errorf("%w: %s %q is given twice", ErrInvalid, kind, name)
		}
		seen[name] = true
	}
	return nil
}

var hostname = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)

func checkHost(host string) error {
	if _, err := netip.ParseAddr(host); err == nil || hostname.MatchString(host) {
		return nil
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		return fmt.Errorf("%w host %q: give it without the port, as %q", ErrInvalid, host, h)
	}
	return fmt.Errorf("%w host %q: give a host name or an IP address", ErrInvalid, host)
}
