package main

import (
	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/server"
)

// options are the values set by flags.
type options struct {
	server.Config

	cluster        string
	join           string
	dev            bool
	configFile     string
	checkConfig    bool
	logLevel       string
	logFormat      string
	logBufferBytes int
}

// defaults returns the options without any flags. They are those of package server, except that a zero
// marks values that are derived from others.
func defaults() *options {
	o := &options{Config: server.Defaults(), logLevel: "info", logFormat: "text", logBufferBytes: logBytes}
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
		{"5. Limits of the cluster (replicated at the first start, ignored afterwards)", o.clusterFlags(), true},
		{"6. Limits of this node", o.limitFlags(), true},
		{"7. Backups", o.backupFlags(), false},
		{"8. Autopilot (the leader's settings apply)", o.autopilotFlags(), true},
		{"9. Logs", o.logFlags(), false},
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
		{"id", &o.ID, "`NAME` of the node in its cluster; it cannot be changed"},
		{"data-dir", &o.DataDir, "`DIRECTORY` for the node's log, votes and snapshots"},
		{"cluster", &o.cluster, "initial voters with their peer addresses, `n1=host:port,n2=…`, including this node; without it and --join, a single node"},
		{"join", &o.join, "join the cluster that is found at these peer addresses, `HOST:PORT,…`, all addresses of a host counting, or by names of SRV records, _quorumlock._tcp.example.org; instead of --cluster"},
		{"bootstrap-expect", &o.BootstrapExpect, "form a new cluster with --join once this `NUMBER` of empty nodes has been found"},
		{"dev", &o.dev, "run a single node on loopback with a temporary directory that is removed at exit"},
		{"config", &o.configFile, "YAML `FILE` with the names of these flags as keys"},
		{"check-config", &o.checkConfig, "check the configuration as a start does, print warnings and \"configuration ok\", and exit; starts and changes nothing"},
		{"shutdown-timeout", &o.ShutdownTimeout, "maximum duration of a graceful stop"},
		{"feature-level", &o.FeatureLevel, "highest feature `LEVEL` that the node supports; a lower one than the program's keeps the cluster's level down, so that an upgrade can be undone"},
	}
}

func (o *options) portFlags() []setting {
	return []setting{
		{"client-addr", &o.Listen.Client, "`HOST:PORT` to listen on for the SDK and qlock; port 0 selects a free port"},
		{"peer-addr", &o.Listen.Peer, "`HOST:PORT` to listen on for the other nodes"},
		{"http-addr", &o.Listen.HTTP, "`HOST:PORT` to listen on for JSON, gRPC, health and metrics; empty disables it"},
		{"redis-addr", &o.RedisAddr, "`HOST:PORT` to listen on for lock libraries of Redis, by convention port 7403; empty disables it"},
		{"redis-prefix", &o.Redis.Prefix, "`TEXT` that begins the lock names of all keys on the Redis port"},
		{"redis-default-ttl", &o.Redis.DefaultTTL, "TTL of locks that a Redis client acquires without one; 0 refuses them"},
		{"redis-allow-force", &o.Redis.AllowForce, "let DEL on the Redis port release the holds of others while there is no policy"},
		{"no-console", &o.NoConsole, "do not serve the web console at /ui/ of the HTTP port"},
		{"health-addr", &o.HealthAddr, "`HOST:PORT` to listen on for /healthz and /readyz only, in plaintext; empty disables it"},
		{"advertise-client-addr", &o.Advertise.Client, "`HOST:PORT` at which clients reach this node; required if --client-addr binds every interface"},
		{"advertise-peer-addr", &o.Advertise.Peer, "`HOST:PORT` at which other nodes reach this node; required if --peer-addr binds every interface"},
		{"advertise-http-addr", &o.Advertise.HTTP, "`HOST:PORT` at which HTTP clients and other nodes reach this node; required if --http-addr binds every interface"},
		{"insecure", &o.Insecure, "allow plaintext beyond loopback, and TLS clients without a certificate: without a policy, anyone who reaches the ports may do everything"},
	}
}

func (o *options) tlsFlags() []setting {
	return []setting{
		{"tls-cert", &o.TLS.Cert, "certificate `FILE` of the client and HTTP ports; changed files are reloaded"},
		{"tls-key", &o.TLS.Key, "private key `FILE` of that certificate"},
		{"tls-ca", &o.TLS.CA, "CA `FILE`; clients must present a certificate that it signed, or a token"},
		{"tls-crl", &o.TLS.CRL, "`FILE` with certificates that the CA has revoked; connections with them are refused, and closed within a second after the file changes"},
		{"peer-tls-cert", &o.PeerTLS.Cert, "certificate `FILE` of the peer port, which names the node: quorumlock://<cluster>/<id>"},
		{"peer-tls-key", &o.PeerTLS.Key, "private key `FILE` of that certificate"},
		{"peer-tls-ca", &o.PeerTLS.CA, "CA `FILE`; nodes must present a certificate that it signed"},
		{"peer-tls-crl", &o.PeerTLS.CRL, "`FILE` with certificates of nodes that the CA has revoked"},
		{"http-client-auth", &o.HTTPClientAuth, "client certificates on the HTTP port, `MODE` require, optional or none (default: require with --tls-ca, otherwise none; health checks are exempt)"},
	}
}

func (o *options) raftFlags() []setting {
	return []setting{
		{"heartbeat-timeout", &o.HeartbeatTimeout, "how long a follower waits for a heartbeat before it starts an election"},
		{"election-timeout", &o.ElectionTimeout, "how long a candidate waits before it starts another election"},
		{"leader-lease-timeout", &o.LeaderLeaseTimeout, "how long a leader without contact to a majority remains leader"},
		{"commit-timeout", &o.CommitTimeout, "maximum delay until followers learn of a commit"},
		{"hash-interval", &o.HashInterval, "interval at which nodes hash and compare their states if they have changed"},
		{"log-segment-bytes", &o.LogSegmentBytes, "size of the log's segment files; the space is allocated when a file is created"},
		{"no-overlap", &o.NoOverlap, "as leader, write entries to the local disk before replicating them"},
		{"no-failover-hint", &o.NoFailoverHint, "wait for raft's timeouts even if a majority has seen the leader's process die"},
		{"no-tunnels", &o.NoTunnels, "do not open tunnels for clients that cannot reach the leader, nor accept them as leader"},
		{"snapshot-threshold", &o.SnapshotThreshold, "log entries between snapshots; 0 for automatic"},
		{"trailing-logs", &o.TrailingLogs, "log entries kept after a snapshot for lagging followers; 0 for automatic"},
	}
}

func (o *options) backupFlags() []setting {
	return []setting{
		{"backup-dir", &o.BackupDir, "existing `DIRECTORY` to which the leader writes a verified backup by the schedule; empty disables that"},
		{"backup-schedule", &o.BackupSchedule, "cron `EXPRESSION` with five fields, in UTC unless it begins with CRON_TZ=ZONE, or one like @daily or @every 1h"},
		{"backup-keep", &o.BackupKeep, "number of backups that are kept; 0 keeps all"},
		{"backup-s3", &o.BackupS3, "bucket for copies of the backups, `URL` s3://BUCKET/PREFIX?endpoint=HOST:PORT&region=REGION&insecure=true; credentials from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ~/.aws/credentials or the machine's role"},
	}
}

func (o *options) autopilotFlags() []setting {
	a := &o.Autopilot
	return []setting{
		{"autopilot-stabilization", &a.Stabilization, "how long a new node must have been healthy before it gets its vote"},
		{"autopilot-cleanup", &a.Cleanup, "remove dead members"},
		{"autopilot-dead-after", &a.DeadAfter, "how long a member must not have answered to be dead"},
		{"autopilot-min-quorum", &a.MinQuorum, "number of voters below which no dead voter is removed"},
	}
}

func (o *options) clusterFlags() []setting {
	s := o.Settings
	return []setting{
		{"min-ttl", milliseconds{&s.MinTtlMs}, "shortest TTL of a session"},
		{"max-ttl", milliseconds{&s.MaxTtlMs}, "longest TTL of a session"},
		{"max-lease-ttl", milliseconds{&s.MaxLeaseTtlMs}, "longest TTL of a lease"},
		{"min-key-ttl", milliseconds{&s.MinKeyTtlMs}, "shortest TTL of a key"},
		{"max-key-ttl", milliseconds{&s.MaxKeyTtlMs}, "longest TTL of a key"},
		{"default-ttl", milliseconds{&s.DefaultTtlMs}, "TTL of a session that does not request one"},
		{"max-sessions", &s.MaxSessions, "maximum number of sessions"},
		{"max-locks", &s.MaxLocks, "maximum number of locks that are held or waited for"},
		{"max-waiters", &s.MaxWaitersPerLock, "maximum number of waiters per lock"},
		{"max-claims", &s.MaxClaimsPerSession, "maximum number of holds and waits per session"},
		{"max-window", &s.MaxWindow, "maximum number of remembered outcomes per session"},
		{"max-value-bytes", &s.MaxValueBytes, "maximum size of a hold's value"},
		{"max-client-info-bytes", &s.MaxClientInfoBytes, "maximum size of a client's details"},
		{"max-cached-idle", milliseconds{&s.MaxCachedIdleMs}, "how long a session may keep a cached hold unused; 0 for ten minutes. A value starts a new cluster at feature level 2"},
		{"no-cached-holds", &s.NoCachedHolds, "refuse cached holds; it starts a new cluster at feature level 2"},
		{"max-state-bytes", &s.MaxStateBytes, "budget of the replicated state, in units of at least one byte; 0 for a quarter of --memory-limit; must fit into --memory-limit together with --max-buffer-bytes"},
		{"max-session-bytes", &s.MaxSessionBytes, "budget of one session, in the same units"},
		{"token-floor", &o.TokenFloor, "every fencing token will be greater than this"},
	}
}

func (o *options) limitFlags() []setting {
	l := &o.Limits
	return []setting{
		{"memory-limit", &o.MemoryLimit, "memory limit of the node in bytes; GOMEMLIMIT defaults to nine tenths of it"},
		{"max-buffer-bytes", &o.MaxBufferBytes, "part of it for connections, incoming requests, unread responses and watches; 0 for an eighth"},
		{"disk-timeout", &o.DiskTimeout, "maximum duration of a write to the disk including its sync; if it is exceeded, the node exits"},
		{"max-connections", &l.MaxConnections, "maximum number of connections on the client port, and on the Redis port"},
		{"max-tunnels", &l.MaxTunnels, "maximum number of tunnels to the leader, half of them per client address; 0 for 1,024 or --max-connections, whichever is lower"},
		{"max-handshakes", &l.MaxHandshakes, "maximum number of unfinished handshakes on the client, the HTTP and the Redis port, half of them per client address; beyond it the oldest is closed"},
		{"max-in-flight", &l.MaxInFlight, "maximum number of unanswered requests per connection; beyond it the node stops reading"},
		{"max-frame-bytes", &l.MaxFrameBytes, "maximum size of a frame on the client port"},
		{"max-outbox-bytes", &l.MaxOutboxBytes, "maximum number of unsent bytes per connection; beyond it the connection is closed"},
		{"handshake-timeout", &l.HandshakeTimeout, "maximum duration of a new connection's TLS handshake and hello"},
		{"frame-timeout", &l.FrameTimeout, "maximum duration of reading a frame, or of a write"},
		{"idle-timeout", &l.IdleTimeout, "how long a connection without a session may be idle"},
		{"admin-timeout", &l.AdminTimeout, "maximum duration of an administrative request"},
		{"http-max-connections", &o.HTTPLimits.MaxConnections, "maximum number of connections on the HTTP port"},
		{"http-max-requests", &o.HTTPLimits.MaxRequests, "maximum number of concurrent requests on the HTTP port, including waiting acquires"},
	}
}

func (o *options) logFlags() []setting {
	return []setting{
		{"log-level", &o.logLevel, "`LEVEL`: trace, debug, info, warn or error"},
		{"log-format", &o.logFormat, "`FORMAT`: text or json"},
		{"log-buffer-bytes", &o.logBufferBytes, "lines of the log that wait while nobody reads it; what does not fit is dropped and counted"},
		{"audit-log", &o.AuditLog, "append audit records and denials to this `FILE`, one JSON object per line; reopened on SIGHUP, and if it was renamed"},
	}
}
