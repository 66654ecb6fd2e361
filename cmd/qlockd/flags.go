package main

import (
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/server"
)

// flags are all settings. Their defaults are those of package server.
func flags() []cli.Flag {
	d := server.Defaults()
	var all []cli.Flag
	for _, group := range []struct {
		category string
		settings []setting
	}{
		{"1. The node", nodeFlags()},
		{"2. Ports", portFlags(d)},
		{"3. TLS", tlsFlags()},
		{"4. Raft", raftFlags(d)},
		{"5. Limits of the cluster (from its first start on they are replicated, and these are ignored)", clusterFlags(d)},
		{"6. Limits of this node", limitFlags(d)},
		{"7. Logs", logFlags()},
	} {
		for _, s := range group.settings {
			all = append(all, s.flag(group.category))
		}
	}
	return all
}

// setting is one flag; the type of its value says which kind.
type setting struct {
	name  string
	value any
	usage string
}

func (s setting) flag(category string) cli.Flag {
	env := []string{envName(s.name)}
	switch v := s.value.(type) {
	case bool:
		return &cli.BoolFlag{Name: s.name, Usage: s.usage, Category: category, EnvVars: env, DisableDefaultText: true}
	case time.Duration:
		return &cli.DurationFlag{Name: s.name, Value: v, Usage: s.usage, Category: category, EnvVars: env}
	case int:
		return &cli.IntFlag{Name: s.name, Value: v, Usage: s.usage, Category: category, EnvVars: env}
	case uint64:
		return &cli.Uint64Flag{Name: s.name, Value: v, Usage: s.usage, Category: category, EnvVars: env}
	case uint32:
		return &cli.UintFlag{Name: s.name, Value: uint(v), Usage: s.usage, Category: category, EnvVars: env}
	default:
		return &cli.StringFlag{Name: s.name, Value: v.(string), Usage: s.usage, Category: category, EnvVars: env}
	}
}

func envName(flag string) string {
	return "QLOCKD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func nodeFlags() []setting {
	return []setting{
		{"id", "", "`NAME` of the node within its cluster, for ever"},
		{"data-dir", "", "`DIRECTORY` of the node's log, votes and snapshots"},
		{"cluster", "", "voters of the first start, this node included: `n1=host:port,n2=…` of peer addresses; empty is this node alone"},
		{"dev", false, "one node in a temporary directory, removed at exit, on loopback"},
		{"config", "", "YAML `FILE` whose keys are the names of these flags"},
		{"shutdown-timeout", server.Defaults().ShutdownTimeout, "how long a graceful stop may take"},
	}
}

func portFlags(d server.Config) []setting {
	return []setting{
		{"client-addr", d.Listen.Client, "`HOST:PORT` to listen on for the SDK and qlock; port 0 takes a free one"},
		{"peer-addr", d.Listen.Peer, "`HOST:PORT` to listen on for the other nodes"},
		{"http-addr", d.Listen.HTTP, "`HOST:PORT` to listen on for JSON, gRPC, health and metrics; empty switches it off"},
		{"health-addr", "", "`HOST:PORT` to listen on for /healthz and /readyz alone, in plaintext; empty switches it off"},
		{"advertise-client-addr", "", "`HOST:PORT` under which clients reach this node; required where --client-addr binds every interface"},
		{"advertise-peer-addr", "", "`HOST:PORT` under which the other nodes reach this one; required where --peer-addr binds every interface"},
		{"advertise-http-addr", "", "`HOST:PORT` under which HTTP callers and nodes reach this one; required where --http-addr binds every interface"},
		{"insecure", false, "allow plaintext beyond loopback, and callers without a certificate: everybody who reaches the ports can do everything"},
	}
}

func tlsFlags() []setting {
	return []setting{
		{"tls-cert", "", "certificate `FILE` of the client and HTTP ports; files are read again when they change"},
		{"tls-key", "", "key `FILE` of that certificate"},
		{"tls-ca", "", "`FILE` of the authority whose certificates clients must show"},
		{"peer-tls-cert", "", "certificate `FILE` of the peer port; it names the node: quorumlock://<cluster>/<id>"},
		{"peer-tls-key", "", "key `FILE` of that certificate"},
		{"peer-tls-ca", "", "`FILE` of the authority whose certificates nodes must show"},
		{"http-client-auth", "", "what the HTTP port asks of callers, `MODE` require, optional or none (default: require with --tls-ca, else none; health is exempt)"},
	}
}

func raftFlags(d server.Config) []setting {
	return []setting{
		{"heartbeat-timeout", d.HeartbeatTimeout, "how long a follower hears nothing from the leader before it stands for election"},
		{"election-timeout", d.ElectionTimeout, "how long an election may take before the next one"},
		{"leader-lease-timeout", d.LeaderLeaseTimeout, "how long a leader without a majority goes on leading"},
		{"commit-timeout", d.CommitTimeout, "how soon followers learn of a commit when nothing else is sent"},
		{"hash-interval", d.HashInterval, "how often the nodes hash and compare their states, if these have moved"},
		{"log-store", string(d.LogStore), "where raft's log is kept, `KIND` segment or bolt; a log in bolt is moved to segments, and does not go back"},
		{"log-segment-bytes", int(d.LogSegmentBytes), "size of the files of --log-store segment; each gets its room on the disk when it is made"},
		{"no-overlap", false, "as leader, write to the own disk first and to the other nodes then, not at once"},
		{"no-failover-hint", false, "call no election when a majority has seen the leader's process die: wait for the time-outs"},
		{"no-tunnels", false, "connect no clients through to the leader that do not reach it, nor take those of other nodes as leader"},
		{"snapshot-threshold", uint64(0), "log entries between snapshots; 0 leaves it to the node"},
		{"trailing-logs", uint64(0), "log entries kept behind a snapshot for followers that lag; 0 leaves it to the node"},
	}
}

func clusterFlags(d server.Config) []setting {
	s := d.Settings
	return []setting{
		{"min-ttl", ttl(s.MinTtlMs), "shortest TTL of a session"},
		{"max-ttl", ttl(s.MaxTtlMs), "longest TTL of a session"},
		{"default-ttl", ttl(s.DefaultTtlMs), "TTL of a session that asks for none"},
		{"max-sessions", s.MaxSessions, "sessions at once"},
		{"max-locks", s.MaxLocks, "locks held or waited for at once"},
		{"max-waiters", s.MaxWaitersPerLock, "waiters in the queue of one lock"},
		{"max-claims", s.MaxClaimsPerSession, "holds and waits of one session together"},
		{"max-window", s.MaxWindow, "requests of one session whose outcomes are remembered"},
		{"max-value-bytes", s.MaxValueBytes, "size of a hold's value"},
		{"max-client-info-bytes", s.MaxClientInfoBytes, "size of what a client says of itself"},
		{"max-state-bytes", uint64(0), "what the whole replicated state may take, in units that are no less than bytes; 0 is a quarter of --memory-limit, and with --max-buffer-bytes it must fit into that"},
		{"max-session-bytes", s.MaxSessionBytes, "what one session may take of that"},
		{"token-floor", uint64(0), "no fencing token at or below this is ever minted"},
	}
}

func limitFlags(d server.Config) []setting {
	l := d.Limits
	return []setting{
		{"memory-limit", int(d.MemoryLimit), "bytes of memory that the node may take; sets GOMEMLIMIT to nine tenths of it unless the environment does"},
		{"max-buffer-bytes", uint64(0), "bytes of that for what clients make the node hold for a while: connections, requests being read, answers not taken, watches; 0 is an eighth"},
		{"disk-timeout", d.DiskTimeout, "how long one write to the disk, with its syncs, may take before the node ends, so that another one can lead"},
		{"max-connections", l.MaxConnections, "connections on the client port at once"},
		{"max-tunnels", l.MaxTunnels, "of these, clients that are connected through to the leader; half of them from one address"},
		{"max-handshakes", l.MaxHandshakes, "connections on each of the client and HTTP ports that are not established yet, half of them from one address; beyond that the oldest is cut"},
		{"max-in-flight", l.MaxInFlight, "requests unanswered at once on one connection; beyond that the node stops reading from it"},
		{"max-frame-bytes", l.MaxFrameBytes, "size of one frame on the client port"},
		{"max-outbox-bytes", l.MaxOutboxBytes, "bytes that wait for one client that does not read, before it is cut off"},
		{"handshake-timeout", l.HandshakeTimeout, "how long a new connection may take for TLS and hello"},
		{"frame-timeout", l.FrameTimeout, "how long one frame may take to arrive, or one write to be taken"},
		{"idle-timeout", l.IdleTimeout, "how long a connection without a session may say nothing"},
		{"admin-timeout", l.AdminTimeout, "how long one administrative request may take"},
		{"http-max-connections", 4_096, "connections on the HTTP port at once"},
		{"http-max-requests", 16_384, "requests under way at once on the HTTP port, waiting acquires included"},
	}
}

func logFlags() []setting {
	return []setting{
		{"log-level", "info", "`LEVEL`: trace, debug, info, warn or error"},
		{"log-format", "text", "`FORMAT`: text or json"},
	}
}

func ttl(ms uint32) time.Duration { return time.Duration(ms) * time.Millisecond }
