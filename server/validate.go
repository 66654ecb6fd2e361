package server

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/seeds"
	"github.com/quorumlock/quorumlock/server/redis/keyname"
	"github.com/quorumlock/quorumlock/transport"
)

// maxVoters bounds the voters of a cluster. Beyond it, the cost outweighs the added fault tolerance: each
// commit waits for a majority.
const maxVoters = 7

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Validate checks each field and the fields against each other. It returns all faults joined and wrapped in
// ErrConfig.
func (c Config) Validate() error {
	c = c.withDefaults()
	faults := slices.Concat(c.checkIdentity(), c.checkAddresses(), c.checkCluster(), c.checkTLS(), c.checkRedis(), c.checkBackups(), c.checkNumbers())
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrConfig, errors.Join(faults...))
}

// Warnings returns a message for each setting that is allowed but unwise.
func (c Config) Warnings() []string {
	c = c.withDefaults()
	var out []string
	if n := len(c.Cluster); n > 0 && n%2 == 0 {
		out = append(out, fmt.Sprintf("a cluster of %d voters survives no more failures than one of %d: use an odd number", n, n-1))
	}
	failover := c.HeartbeatTimeout + c.ElectionTimeout
	if ttl := millis(c.Settings.MinTtlMs); ttl < 3*failover {
		out = append(out, fmt.Sprintf("sessions with the smallest TTL (--min-ttl %v) may be lost in one fail-over: a new leader takes up to %v", ttl, 2*failover))
	}
	if c.FeatureLevel < fsm.Level {
		out = append(out, fmt.Sprintf("--feature-level %d: the cluster's level is not raised beyond it; remove the flag, which this program does not need, to use level %d", c.FeatureLevel, fsm.Level))
	}
	if c.Insecure {
		out = append(out, "--insecure: traffic beyond loopback may go in plaintext, and callers need no certificate unless --tls-ca asks for it; whoever reaches the peer port owns the cluster")
	}
	if after := c.Autopilot.DeadAfter; c.Autopilot.Cleanup && after < time.Hour {
		out = append(out, fmt.Sprintf("a node that is down for --autopilot-dead-after %v is removed, and must then be added again with an empty data directory: maintenance may take longer", after))
	}
	return append(out, c.backupWarnings()...)
}

func (c Config) checkIdentity() (faults []error) {
	if c.ID == "" {
		faults = append(faults, errors.New("--id is missing: give the node an ID that is unique in its cluster and never changes"))
	} else if !idPattern.MatchString(c.ID) {
		faults = append(faults, fmt.Errorf("--id %q: name the node with 1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or digit", c.ID))
	}
	if c.DataDir == "" && !c.hasStores() {
		faults = append(faults, errors.New("--data-dir is missing: say where the node keeps its log, or use --dev for a throw-away node"))
	}
	return faults
}

func (c Config) hasStores() bool {
	return c.Stores.Log != nil && c.Stores.Stable != nil && c.Stores.Snapshots != nil
}

// port is a listener, with its name in the flags.
type port struct {
	name              string
	listen, advertise string
	tls               transport.TLSFiles
	optional          bool
	unannounced       bool // the node tells nobody its address
	harmless          bool // serves nothing secret and accepts no input, so plaintext is allowed on any address
}

func (c Config) ports() []port {
	return []port{
		{name: "peer", listen: c.Listen.Peer, advertise: c.Advertise.Peer, tls: c.PeerTLS},
		{name: "client", listen: c.Listen.Client, advertise: c.Advertise.Client, tls: c.TLS},
		{name: "http", listen: c.Listen.HTTP, advertise: c.Advertise.HTTP, tls: c.TLS, optional: true},
		{name: "redis", listen: c.RedisAddr, tls: c.TLS, optional: true, unannounced: true},
		{name: "health", listen: c.HealthAddr, optional: true, harmless: true},
	}
}

func (c Config) checkAddresses() (faults []error) {
	bound := map[string]string{}
	for _, p := range c.ports() {
		if p.listen == "" && p.optional {
			continue
		}
		if err := p.check(c.Insecure); err != nil {
			faults = append(faults, err)
			continue
		}
		if other, taken := bound[p.listen]; taken && !isPortZero(p.listen) {
			faults = append(faults, fmt.Errorf("--%s-addr and --%s-addr are both %s: give each port its own", other, p.name, p.listen))
		}
		bound[p.listen] = p.name
	}
	return faults
}

func (p port) check(insecure bool) error {
	host, _, err := splitAddr(p.listen)
	if err != nil {
		return fmt.Errorf("--%s-addr %q: %w", p.name, p.listen, err)
	}
	if p.harmless {
		return nil
	}
	if p.advertise == "" && isWildcard(host) && !p.unannounced {
		return fmt.Errorf("--%s-addr %s binds every interface: say with --advertise-%s-addr under which address others reach it", p.name, p.listen, p.name)
	}
	if p.advertise != "" {
		if err := checkReachable(p.advertise); err != nil {
			return fmt.Errorf("--advertise-%s-addr %q: %w", p.name, p.advertise, err)
		}
	}
	if p.tls.Cert == "" {
		if err := transport.CheckPlaintext(p.listen, insecure); err != nil {
			return fmt.Errorf("--%s-addr %s: %w", p.name, p.listen, err)
		}
	}
	return nil
}

func (c Config) checkCluster() (faults []error) {
	if faults = c.checkJoin(); len(c.Cluster) == 0 {
		return faults
	}
	if len(c.Cluster) > maxVoters {
		faults = append(faults, fmt.Errorf("--cluster names %d nodes: list at most %d, more cannot vote", len(c.Cluster), maxVoters))
	}
	ids, addrs := map[string]bool{}, map[string]bool{}
	for _, p := range c.Cluster {
		if !idPattern.MatchString(p.ID) {
			faults = append(faults, fmt.Errorf("--cluster: %q is no node id: use 1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or digit", p.ID))
		}
		if err := checkReachable(p.Addr); err != nil {
			faults = append(faults, fmt.Errorf("--cluster: %s=%s: %w", p.ID, p.Addr, err))
		}
		if ids[p.ID] || addrs[p.Addr] {
			faults = append(faults, fmt.Errorf("--cluster names %s=%s twice: give each node its own id and its own address", p.ID, p.Addr))
		}
		ids[p.ID], addrs[p.Addr] = true, true
	}
	if c.ID != "" && !ids[c.ID] {
		faults = append(faults, fmt.Errorf("--cluster does not name this node: add %s=host:port with its advertised peer address", c.ID))
	}
	if own := c.ownEntry(); own != "" && c.Advertise.Peer != "" && own != c.Advertise.Peer {
		faults = append(faults, fmt.Errorf("--cluster says that %s is at %s, --advertise-peer-addr says %s: make them equal", c.ID, own, c.Advertise.Peer))
	}
	return faults
}

func (c Config) checkJoin() (faults []error) {
	for _, seed := range c.Join {
		if err := seeds.Check(seed); err != nil {
			faults = append(faults, fmt.Errorf("--join %q: %w", seed, err))
		}
	}
	switch {
	case len(c.Join) > 0 && len(c.Cluster) > 0:
		faults = append(faults, errors.New("--join and --cluster exclude each other: --cluster lists the nodes of a new cluster, --join finds them or an existing cluster"))
	case c.BootstrapExpect != 0 && len(c.Join) == 0:
		faults = append(faults, errors.New("--bootstrap-expect needs --join: give the peer addresses of the other nodes, or one name for all"))
	}
	if n := c.BootstrapExpect; n < 0 || n > maxVoters || n > 0 && n%2 == 0 {
		faults = append(faults, fmt.Errorf("--bootstrap-expect %d: use 3, 5 or 7 (or 1 for development), since an even number survives no more failures than one less", n))
	}
	return faults
}

// ownEntry returns this node's address in Cluster, or "" if Cluster does not name it.
func (c Config) ownEntry() string {
	for _, p := range c.Cluster {
		if p.ID == c.ID {
			return p.Addr
		}
	}
	return ""
}

func (c Config) checkTLS() (faults []error) {
	for _, t := range []struct {
		prefix string
		files  transport.TLSFiles
	}{{"tls", c.TLS}, {"peer-tls", c.PeerTLS}} {
		if (t.files.Cert == "") != (t.files.Key == "") {
			faults = append(faults, fmt.Errorf("--%s-cert and --%s-key go together: give both or neither", t.prefix, t.prefix))
		}
		if t.files.CA != "" && t.files.Cert == "" {
			faults = append(faults, fmt.Errorf("--%s-ca without --%s-cert would leave the port in plaintext: give certificate and key too", t.prefix, t.prefix))
		}
		if t.files.CRL != "" && t.files.CA == "" {
			faults = append(faults, fmt.Errorf("--%s-crl needs --%s-ca: give the authority that signed the list", t.prefix, t.prefix))
		}
	}
	if c.TLS.Cert != "" && c.TLS.CA == "" && !c.Insecure {
		faults = append(faults, errors.New("--tls-ca is missing: without it, callers need no certificate, and whoever reaches the ports can do everything, backups and operators' acts included; "+
			"give --tls-ca, or --insecure if the network is safe"))
	}
	if c.PeerTLS.Cert != "" && c.PeerTLS.CA == "" {
		faults = append(faults, errors.New("--peer-tls-ca is missing: give the authority that signed the certificates of all nodes, since they always check each other's"))
	}
	switch c.HTTPClientAuth {
	case AuthDefault, AuthNone:
	case AuthRequire, AuthOptional:
		if c.TLS.CA == "" {
			faults = append(faults, fmt.Errorf("--http-client-auth %s needs --tls-ca: give the authority that signed the certificates of clients", c.HTTPClientAuth))
		}
	default:
		return append(faults, fmt.Errorf("--http-client-auth %q: use require, optional or none", c.HTTPClientAuth))
	}
	if c.TLS.CA != "" && c.clientAuth() != AuthRequire && !c.Insecure {
		faults = append(faults, fmt.Errorf("--http-client-auth %s lets callers without a certificate do everything, backups and operators' acts included: "+
			"leave it out, or give --insecure if the network is safe", c.HTTPClientAuth))
	}
	return faults
}

// clientAuth returns HTTPClientAuth with AuthDefault resolved.
func (c Config) clientAuth() ClientAuth {
	switch {
	case c.HTTPClientAuth != AuthDefault:
		return c.HTTPClientAuth
	case c.TLS.CA != "":
		return AuthRequire
	default:
		return AuthNone
	}
}

func (c Config) checkRedis() (faults []error) {
	if _, err := keyname.New(c.Redis.Prefix); err != nil {
		faults = append(faults, fmt.Errorf("--redis-prefix: %w", err))
	}
	return faults
}

func millis(ms uint32) time.Duration { return time.Duration(ms) * time.Millisecond }

func splitAddr(addr string) (host string, portNumber int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, errors.New("write it as host:port")
	}
	n, err := strconv.Atoi(p)
	if err != nil || n < 0 || n > 65535 {
		return "", 0, fmt.Errorf("%q is no port number: use 0 to 65535", p)
	}
	return host, n, nil
}

// checkReachable returns an error if addr is not an address that others can dial.
func checkReachable(addr string) error {
	host, n, err := splitAddr(addr)
	switch {
	case err != nil:
		return err
	case isWildcard(host):
		return errors.New("names no host that others could dial: give a name or an address of this machine")
	case n == 0:
		return errors.New("names no port that others could dial: give the port that the node listens on")
	}
	return nil
}

func isWildcard(host string) bool {
	return host == "" || net.ParseIP(host).IsUnspecified()
}

// isPortZero expects an address that was already checked.
func isPortZero(addr string) bool {
	_, n, _ := splitAddr(addr)
	return n == 0
}
