package main

import (
	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/server"
)

// options are the values set by flags.
type options struct {
	server.Config

	cluster    string
	dev        bool
	configFile string
	logLevel   string
	logFormat  string
}

// defaults returns the options without any flags. They are those of package server, except that a zero
// marks values that are derived from others.
func defaults() *options {
	o := &options{Config: server.Defaults(), logLevel: "info", logFormat: "text"}
	o.MaxBufferBytes, o.Settings.MaxStateBytes, o.Limits.MaxTunnels = 0, 0, 0
	o.HTTPLimits.MaxConnections, o.HTTPLimits.MaxRequests = 4_096, 16_384
	return o
}

// setting is one flag. Its field initially holds the default.
type setting struct {
	name string
	// field points to a string, bool, number or duration in options, or is a milliseconds.
	field any
	usage string
}

// milliseconds is a field in milliseconds that is set by a duration.
type milliseconds struct{ field *uint32 }

// group is the flags under one heading.
type group struct {
	category string
	settings []setting
	// positive makes 0 an error, since package server would treat it as "the default".
	positive bool
}

func (o *options) groups() []group {
	return []group{
		{"1. The node", o.nodeFlags(), false},
		{"2. Ports", o.portFlags(), false},
		{"3. TLS", o.tlsFlags(), false},
		{"4. Raft", o.raftFlags(), true},
		{"5. Limits of the cluster (from its first start on they are replicated, and these are ignored)", o.clusterFlags(), true},
		{"6. Limits of this node", o.limitFlags(), true},
		{"7. Logs", o.logFlags(), false},
	}
}

// flags returns all settings as flags.
func flags() (all []cli.Flag) {
	for _, g := range defaults().groups() {
		for _, s := range g.settings {
			all = append(all, s.flag(g.category))
		}
	}
	return all
}

func (o *options) nodeFlags() []setting {
	return []setting{
		{"id", &o.ID, "`NAME` of the node within its cluster, for ever"},
		{"data-dir", &o.DataDir, "`DIRECTORY` of the node's log, votes and snapshots"},
		{"cluster", &o.cluster, "voters of the first start, this node included: `n1=host:port,n2=…` of peer addresses; empty is this node alone"},
		{"dev", &o.dev, "one node in a temporary directory, removed at exit, on loopback"},
		{"config", &o.configFile, "YAML `FILE` whose keys are the names of these flags"},
		{"shutdown-timeout", &o.ShutdownTimeout, "how long a graceful stop may take"},
	}
}

func (o *options) portFlags() []setting {
	return []setting{
		{"client-addr", &o.Listen.Client, "`HOST:PORT` to listen on for the SDK and qlock; port 0 takes a free one"},
		{"peer-addr", &o.Listen.Peer, "`HOST:PORT` to listen on for the other nodes"},
		{"http-addr", &o.Listen.HTTP, "`HOST:PORT` to listen on for JSON, gRPC, health and metrics; empty switches it off"},
		{"health-addr", &o.HealthAddr, "`HOST:PORT` to listen on for /healthz and /readyz alone, in plaintext; empty switches it off"},
		{"advertise-client-addr", &o.Advertise.Client, "`HOST:PORT` under which clients reach this node; required where --client-addr binds every interface"},
		{"advertise-peer-addr", &o.Advertise.Peer, "`HOST:PORT` under which the other nodes reach this one; required where --peer-addr binds every interface"},
		{"advertise-http-addr", &o.Advertise.HTTP, "`HOST:PORT` under which HTTP callers and nodes reach this one; required where --http-addr binds every interface"},
		{"insecure", &o.Insecure, "allow plaintext beyond loopback, and callers without a certificate: everybody who reaches the ports can do everything"},
	}
}

func (o *options) tlsFlags() []setting {
	return []setting{
		{"tls-cert", &o.TLS.Cert, "certificate `FILE` of the client and HTTP ports; files are read again when they change"},
		{"tls-key", &o.TLS.Key, "key `FILE` of that certificate"},
		{"tls-ca", &o.TLS.CA, "`FILE` of the authority whose certificates clients must show"},
		{"peer-tls-cert", &o.PeerTLS.Cert, "certificate `FILE` of the peer port; it names the node: quorumlock://<cluster>/<id>"},
		{"peer-tls-key", &o.PeerTLS.Key, "key `FILE` of that certificate"},
		{"peer-tls-ca", &o.PeerTLS.CA, "`FILE` of the authority whose certificates nodes must show"},
		{"http-client-auth", &o.HTTPClientAuth, "what the HTTP port asks of callers, `MODE` require, optional or none (default: require with --tls-ca, else none; health is exempt)"},
	}
}

func (o *options) raftFlags() []setting {
	return []setting{
		{"heartbeat-timeout", &o.HeartbeatTimeout, "how long a follower hears nothing from the leader before it stands for election"},
		{"election-timeout", &o.ElectionTimeout, "how long an election may take before the next one"},
		{"leader-lease-timeout", &o.LeaderLeaseTimeout, "how long a leader without a majority goes on leading"},
		{"commit-timeout", &o.CommitTimeout, "how soon followers learn of a commit when nothing else is sent"},
		{"hash-interval", &o.HashInterval, "how often the nodes hash and compare their states, if these have moved"},
		{"log-store", &o.LogStore, "where raft's log is kept, `KIND` segment or bolt; a log in bolt is moved to segments, and does not go back"},
		{"log-segment-bytes", &o.LogSegmentBytes, "size of the files of --log-store segment; each gets its room on the disk when it is made"},
		{"no-overlap", &o.NoOverlap, "as leader, write to the own disk first and to the other nodes then, not at once"},
		{"no-failover-hint", &o.NoFailoverHint, "call no election when a majority has seen the leader's process die: wait for the time-outs"},
		{"no-tunnels", &o.NoTunnels, "connect no clients through to the leader that do not reach it, nor take those of other nodes as leader"},
		{"snapshot-threshold", &o.SnapshotThreshold, "log entries between snapshots; 0 leaves it to the node"},
		{"trailing-logs", &o.TrailingLogs, "log entries kept behind a snapshot for followers that lag; 0 leaves it to the node"},
	}
}

func (o *options) clusterFlags() []setting {
	s := o.Settings
	return []setting{
		{"min-ttl", milliseconds{&s.MinTtlMs}, "shortest TTL of a session"},
		{"max-ttl", milliseconds{&s.MaxTtlMs}, "longest TTL of a session"},
		{"default-ttl", milliseconds{&s.DefaultTtlMs}, "TTL of a session that asks for none"},
		{"max-sessions", &s.MaxSessions, "sessions at once"},
		{"max-locks", &s.MaxLocks, "locks held or waited for at once"},
		{"max-waiters", &s.MaxWaitersPerLock, "waiters in the queue of one lock"},
		{"max-claims", &s.MaxClaimsPerSession, "holds and waits of one session together"},
		{"max-window", &s.MaxWindow, "requests of one session whose outcomes are remembered"},
		{"max-value-bytes", &s.MaxValueBytes, "size of a hold's value"},
		{"max-client-info-bytes", &s.MaxClientInfoBytes, "size of what a client says of itself"},
		{"max-state-bytes", &s.MaxStateBytes, "what the whole replicated state may take, in units that are no less than bytes; 0 is a quarter of --memory-limit, and with --max-buffer-bytes it must fit into that"},
		{"max-session-bytes", &s.MaxSessionBytes, "what one session may take of that"},
		{"token-floor", &o.TokenFloor, "no fencing token at or below this is ever minted"},
	}
}

func (o *options) limitFlags() []setting {
	l := &o.Limits
	return []setting{
		{"memory-limit", &o.MemoryLimit, "bytes of memory that the node may take; sets GOMEMLIMIT to nine tenths of it unless the environment does"},
		{"max-buffer-bytes", &o.MaxBufferBytes, "bytes of that for what clients make the node hold for a while: connections, requests being read, answers not taken, watches; 0 is an eighth"},
		{"disk-timeout", &o.DiskTimeout, "how long one write to the disk, with its syncs, may take before the node ends, so that another one can lead"},
		{"max-connections", &l.MaxConnections, "connections on the client port at once"},
		{"max-tunnels", &l.MaxTunnels, "of these, clients that are connected through to the leader, half of them from one address; 0 is 1,024, or all of them if there are fewer"},
		{"max-handshakes", &l.MaxHandshakes, "connections on each of the client and HTTP ports that are not established yet, half of them from one address; beyond that the oldest is cut"},
		{"max-in-flight", &l.MaxInFlight, "requests unanswered at once on one connection; beyond that the node stops reading from it"},
		{"max-frame-bytes", &l.MaxFrameBytes, "size of one frame on the client port"},
		{"max-outbox-bytes", &l.MaxOutboxBytes, "bytes that wait for one client that does not read, before it is cut off"},
		{"handshake-timeout", &l.HandshakeTimeout, "how long a new connection may take for TLS and hello"},
		{"frame-timeout", &l.FrameTimeout, "how long one frame may take to arrive, or one write to be taken"},
		{"idle-timeout", &l.IdleTimeout, "how long a connection without a session may say nothing"},
		{"admin-timeout", &l.AdminTimeout, "how long one administrative request may take"},
		{"http-max-connections", &o.HTTPLimits.MaxConnections, "connections on the HTTP port at once"},
		{"http-max-requests", &o.HTTPLimits.MaxRequests, "requests under way at once on the HTTP port, waiting acquires included"},
	}
}

func (o *options) logFlags() []setting {
	return []setting{
		{"log-level", &o.logLevel, "`LEVEL`: trace, debug, info, warn or error"},
		{"log-format", &o.logFormat, "`FORMAT`: text or json"},
	}
}
