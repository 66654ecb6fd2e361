package server

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/transport"
)

// maxVoters is where more voters cost more than they give: each commit waits for a
// majority of them.
const maxVoters = 7

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Validate checks every field, and the fields against each other. It returns all
// faults at once, each of them wrapped in ErrConfig.
func (c Config) Validate() error {
	c = c.withDefaults()
	faults := slices.Concat(c.checkIdentity(), c.checkAddresses(), c.checkCluster(), c.checkTLS(),
		c.checkTimeouts(), c.checkSettings(), c.checkLimits(), c.checkMemory())
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrConfig, errors.Join(faults...))
}

// Warnings are what is allowed and unwise.
func (c Config) Warnings() []string {
	c = c.withDefaults()
	var out []string
	if n := len(c.Cluster); n > 1 && n%2 == 0 {
		out = append(out, fmt.Sprintf("a cluster of %d voters survives no more failures than one of %d: use an odd number", n, n-1))
	}
	failover := c.HeartbeatTimeout + c.ElectionTimeout
	if ttl := millis(c.Settings.MinTtlMs); ttl < 3*failover {
		out = append(out, fmt.Sprintf("sessions with the smallest TTL (--min-ttl %v) may be lost in one fail-over: a new leader takes up to %v", ttl, 2*failover))
	}
	if c.Insecure {
		out = append(out, "--insecure: traffic beyond loopback may go in plaintext, and callers need no certificate unless --tls-ca asks for it; whoever reaches the peer port owns the cluster")
	}
	return out
}

func (c Config) checkIdentity() (faults []error) {
	if c.ID == "" {
		faults = append(faults, errors.New("--id is missing: name the node, for ever and unlike every other of its cluster"))
	} else if !idPattern.MatchString(c.ID) {
		faults = append(faults, fmt.Errorf("--id %q: name the node with 1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or digit", c.ID))
	}
	if c.DataDir == "" && !c.hasStores() {
		faults = append(faults, errors.New("--data-dir is missing: say where the node keeps its log, or use --dev for a throw-away node"))
	}
	if c.LogStore != replica.LogInSegments && c.LogStore != replica.LogInBolt {
		faults = append(faults, fmt.Errorf("--log-store %q: use %s or %s", c.LogStore, replica.LogInSegments, replica.LogInBolt))
	}
	if c.LogSegmentBytes < 64<<10 || c.LogSegmentBytes > 1<<30 {
		faults = append(faults, fmt.Errorf("--log-segment-bytes %d: 65536 to 1073741824", c.LogSegmentBytes))
	}
	return faults
}

func (c Config) hasStores() bool {
	return c.Stores.Log != nil && c.Stores.Stable != nil && c.Stores.Snapshots != nil
}

// port is one listener with what the flags call it.
type port struct {
	name              string
	listen, advertise string
	tls               transport.TLSFiles
	optional          bool
	harmless          bool // says nothing secret and takes nothing: plaintext will do anywhere
}

func (c Config) ports() []port {
	return []port{
		{name: "peer", listen: c.Listen.Peer, advertise: c.Advertise.Peer, tls: c.PeerTLS},
		{name: "client", listen: c.Listen.Client, advertise: c.Advertise.Client, tls: c.TLS},
		{name: "http", listen: c.Listen.HTTP, advertise: c.Advertise.HTTP, tls: c.TLS, optional: true},
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
	if p.advertise == "" && isWildcard(host) {
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
	if len(c.Cluster) == 0 {
		return nil
	}
	if len(c.Cluster) > maxVoters {
		faults = append(faults, fmt.Errorf("--cluster names %d nodes: at most %d vote", len(c.Cluster), maxVoters))
	}
	ids, addrs := map[string]bool{}, map[string]bool{}
	for _, p := range c.Cluster {
		if !idPattern.MatchString(p.ID) {
			faults = append(faults, fmt.Errorf("--cluster: %q is no node id", p.ID))
		}
		if err := checkReachable(p.Addr); err != nil {
			faults = append(faults, fmt.Errorf("--cluster: %s=%s: %w", p.ID, p.Addr, err))
		}
		if ids[p.ID] || addrs[p.Addr] {
			faults = append(faults, fmt.Errorf("--cluster names %s=%s twice", p.ID, p.Addr))
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

// ownEntry is this node's address in Cluster, empty if it is not named there.
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
	}
	if c.TLS.Cert != "" && c.TLS.CA == "" && !c.Insecure {
		faults = append(faults, errors.New("--tls-ca is missing: without it, callers need no certificate, and whoever reaches the ports can do everything, backups and operators' acts included; "+
			"give --tls-ca, or --insecure if the network is safe"))
	}
	if c.PeerTLS.Cert != "" && c.PeerTLS.CA == "" {
		faults = append(faults, errors.New("--peer-tls-ca is missing: nodes always check each other's certificates"))
	}
	switch c.HTTPClientAuth {
	case AuthDefault, AuthNone:
	case AuthRequire, AuthOptional:
		if c.TLS.CA == "" {
			faults = append(faults, fmt.Errorf("--http-client-auth %s needs --tls-ca to check certificates against", c.HTTPClientAuth))
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

// clientAuth resolves AuthDefault.
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

func (c Config) checkTimeouts() []error {
	var f faultList
	f.require(c.HeartbeatTimeout >= 10*time.Millisecond, "--heartbeat-timeout %v: at least 10ms", c.HeartbeatTimeout)
	f.require(c.ElectionTimeout >= c.HeartbeatTimeout, "--election-timeout %v must not be less than --heartbeat-timeout %v", c.ElectionTimeout, c.HeartbeatTimeout)
	f.require(c.LeaderLeaseTimeout >= 10*time.Millisecond, "--leader-lease-timeout %v: at least 10ms", c.LeaderLeaseTimeout)
	f.require(c.LeaderLeaseTimeout <= c.HeartbeatTimeout, "--leader-lease-timeout %v must not exceed --heartbeat-timeout %v", c.LeaderLeaseTimeout, c.HeartbeatTimeout)
	f.require(c.CommitTimeout >= time.Millisecond && c.CommitTimeout < c.HeartbeatTimeout, "--commit-timeout %v: at least 1ms and less than --heartbeat-timeout %v", c.CommitTimeout, c.HeartbeatTimeout)
	f.require(c.HashInterval >= 100*time.Millisecond, "--hash-interval %v: at least 100ms", c.HashInterval)
	f.require(c.DiskTimeout >= 100*time.Millisecond, "--disk-timeout %v: at least 100ms", c.DiskTimeout)
	f.require(c.ShutdownTimeout > 0, "--shutdown-timeout %v must be positive", c.ShutdownTimeout)
	if ttl := millis(c.Settings.MinTtlMs); ttl < 2*c.ElectionTimeout {
		f.add("--min-ttl %v is less than twice --election-timeout %v: sessions would not outlive a fail-over", ttl, c.ElectionTimeout)
	}
	return f
}

func (c Config) checkSettings() []error {
	var f faultList
	s := c.Settings
	f.require(s.MinTtlMs <= s.MaxTtlMs, "--min-ttl %v exceeds --max-ttl %v", millis(s.MinTtlMs), millis(s.MaxTtlMs))
	f.require(s.DefaultTtlMs >= s.MinTtlMs && s.DefaultTtlMs <= s.MaxTtlMs, "--default-ttl %v must lie between --min-ttl %v and --max-ttl %v", millis(s.DefaultTtlMs), millis(s.MinTtlMs), millis(s.MaxTtlMs))
	f.require(s.MaxSessionBytes <= s.MaxStateBytes, "--max-session-bytes %d exceeds --max-state-bytes %d", s.MaxSessionBytes, s.MaxStateBytes)
	for _, fault := range fsm.CheckSettings(s) {
		f.add("--%s %d: %d to %d", settingFlag(fault.Name), fault.Value, fault.Min, fault.Max)
	}
	if most := replica.MaxTokenFloor(time.Now()); c.TokenFloor > most {
		f.add("--token-floor %d: at most %d, which is a year above the clock", c.TokenFloor, most)
	}
	return f
}

// settingFlag is the flag of a setting: its name in the schema without unit and scope.
func settingFlag(name string) string {
	for _, tail := range []string{"_ms", "_per_lock", "_per_session"} {
		name = strings.TrimSuffix(name, tail)
	}
	return strings.ReplaceAll(name, "_", "-")
}

// frameOverhead is what a frame holds beside a value and a client's description.
const frameOverhead = 4 << 10

func (c Config) checkLimits() []error {
	var f faultList
	l := c.Limits
	payload := uint64(c.Settings.MaxValueBytes) + uint64(c.Settings.MaxClientInfoBytes) + frameOverhead
	f.require(l.MaxConnections > 0, "--max-connections %d must be positive", l.MaxConnections)
	f.require(l.MaxTunnels > 0 && l.MaxTunnels <= l.MaxConnections, "--max-tunnels %d must be positive and no more than --max-connections %d", l.MaxTunnels, l.MaxConnections)
	f.require(l.MaxHandshakes >= 2 && c.HTTPLimits.MaxHandshakes >= 0, "--max-handshakes %d: at least 2", min(l.MaxHandshakes, c.HTTPLimits.MaxHandshakes))
	f.require(l.MaxInFlight > 0, "--max-in-flight %d must be positive", l.MaxInFlight)
	f.require(l.MaxFrameBytes >= 64<<10 && l.MaxFrameBytes <= transport.FrameCeiling, "--max-frame-bytes %d: from 65536 to %d", l.MaxFrameBytes, transport.FrameCeiling)
	f.require(payload <= uint64(max(l.MaxFrameBytes, 0)), "--max-frame-bytes %d has no room for --max-value-bytes %d and --max-client-info-bytes %d", l.MaxFrameBytes, c.Settings.MaxValueBytes, c.Settings.MaxClientInfoBytes)
	f.require(l.MaxOutboxBytes >= 4*l.MaxFrameBytes, "--max-outbox-bytes %d: at least four frames of --max-frame-bytes %d", l.MaxOutboxBytes, l.MaxFrameBytes)
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"handshake-timeout", l.HandshakeTimeout}, {"frame-timeout", l.FrameTimeout},
		{"idle-timeout", l.IdleTimeout}, {"admin-timeout", l.AdminTimeout},
	} {
		f.require(d.value > 0, "--%s %v must be positive", d.flag, d.value)
	}
	return f
}

type faultList []error

func (f *faultList) add(format string, args ...any) {
	*f = append(*f, fmt.Errorf(format, args...))
}

func (f *faultList) require(ok bool, format string, args ...any) {
	if !ok {
		f.add(format, args...)
	}
}

func millis(ms uint32) time.Duration { return time.Duration(ms) * time.Millisecond }

func splitAddr(addr string) (host string, portNumber int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, errors.New("write it as host:port")
	}
	n, err := strconv.Atoi(p)
	if err != nil || n < 0 || n > 65535 {
		return "", 0, fmt.Errorf("%q is no port number", p)
	}
	return host, n, nil
}

// checkReachable refuses what nobody can dial.
func checkReachable(addr string) error {
	host, n, err := splitAddr(addr)
	switch {
	case err != nil:
		return err
	case isWildcard(host):
		return errors.New("names no host that others could dial")
	case n == 0:
		return errors.New("names no port that others could dial")
	}
	return nil
}

func isWildcard(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

func isPortZero(addr string) bool {
	_, n, err := splitAddr(addr)
	return err == nil && n == 0
}
