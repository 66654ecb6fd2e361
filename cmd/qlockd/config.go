package main

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// configure turns flags into a server.Config. What is wrong beyond their form,
// server.Config.Validate says.
func configure(c *cli.Context) (server.Config, error) {
	if c.NArg() > 0 {
		return server.Config{}, usage(fmt.Errorf("unexpected argument %q: everything is a flag", c.Args().First()))
	}
	if err := requirePositive(c); err != nil {
		return server.Config{}, usage(err)
	}
	peers, err := parseCluster(c.String("cluster"))
	if err != nil {
		return server.Config{}, usage(fmt.Errorf("--cluster: %w", err))
	}
	settings, err := clusterSettings(c)
	if err != nil {
		return server.Config{}, usage(err)
	}
	cfg := server.Config{
		ID:      c.String("id"),
		DataDir: c.String("data-dir"),
		Listen: server.Addresses{
			Peer: c.String("peer-addr"), Client: c.String("client-addr"), HTTP: c.String("http-addr"),
		},
		Advertise: server.Addresses{
			Peer: c.String("advertise-peer-addr"), Client: c.String("advertise-client-addr"), HTTP: c.String("advertise-http-addr"),
		},
		HealthAddr:         c.String("health-addr"),
		MemoryLimit:        int64(c.Int("memory-limit")),
		MaxBufferBytes:     int64(min(c.Uint64("max-buffer-bytes"), math.MaxInt64)),
		Cluster:            peers,
		TLS:                transport.TLSFiles{Cert: c.String("tls-cert"), Key: c.String("tls-key"), CA: c.String("tls-ca")},
		PeerTLS:            transport.TLSFiles{Cert: c.String("peer-tls-cert"), Key: c.String("peer-tls-key"), CA: c.String("peer-tls-ca")},
		HTTPClientAuth:     server.ClientAuth(c.String("http-client-auth")),
		Insecure:           c.Bool("insecure"),
		HeartbeatTimeout:   c.Duration("heartbeat-timeout"),
		ElectionTimeout:    c.Duration("election-timeout"),
		LeaderLeaseTimeout: c.Duration("leader-lease-timeout"),
		CommitTimeout:      c.Duration("commit-timeout"),
		HashInterval:       c.Duration("hash-interval"),
		NoFailoverHint:     c.Bool("no-failover-hint"),
		NoTunnels:          c.Bool("no-tunnels"),
		NoOverlap:          c.Bool("no-overlap"),
		SnapshotThreshold:  c.Uint64("snapshot-threshold"),
		TrailingLogs:       c.Uint64("trailing-logs"),
		Settings:           settings,
		TokenFloor:         c.Uint64("token-floor"),
		DiskTimeout:        c.Duration("disk-timeout"),
		LogStore:           server.LogStore(c.String("log-store")),
		LogSegmentBytes:    int64(c.Int("log-segment-bytes")),
		ShutdownTimeout:    c.Duration("shutdown-timeout"),
		Version:            programVersion(),
	}
	setLimits(&cfg, c)
	return cfg, nil
}

func setLimits(cfg *server.Config, c *cli.Context) {
	l := &cfg.Limits
	l.MaxConnections = c.Int("max-connections")
	l.MaxTunnels = c.Int("max-tunnels")
	l.MaxHandshakes = c.Int("max-handshakes")
	l.MaxInFlight = c.Int("max-in-flight")
	l.MaxFrameBytes = c.Int("max-frame-bytes")
	l.MaxOutboxBytes = c.Int("max-outbox-bytes")
	l.HandshakeTimeout = c.Duration("handshake-timeout")
	l.FrameTimeout = c.Duration("frame-timeout")
	l.IdleTimeout = c.Duration("idle-timeout")
	l.AdminTimeout = c.Duration("admin-timeout")
	cfg.HTTPLimits.MaxConnections = c.Int("http-max-connections")
	cfg.HTTPLimits.MaxHandshakes = l.MaxHandshakes
	cfg.HTTPLimits.MaxRequests = c.Int("http-max-requests")
}

// requirePositive refuses 0, which package server would take for "the default".
func requirePositive(c *cli.Context) error {
	d := server.Defaults()
	var faults []error
	for _, group := range [][]setting{raftFlags(d), clusterFlags(d), limitFlags(d)} {
		for _, s := range group {
			if s.value != uint64(0) && fmt.Sprint(c.Value(s.name)) == fmt.Sprint(zero(s.value)) {
				faults = append(faults, fmt.Errorf("--%s must be positive", s.name))
			}
		}
	}
	return errors.Join(faults...)
}

func zero(value any) any {
	if _, ok := value.(time.Duration); ok {
		return time.Duration(0)
	}
	return 0
}

func clusterSettings(c *cli.Context) (*wire.Settings, error) {
	s := &wire.Settings{
		MaxSessions:         c.Uint64("max-sessions"),
		MaxLocks:            c.Uint64("max-locks"),
		MaxWaitersPerLock:   c.Uint64("max-waiters"),
		MaxClaimsPerSession: c.Uint64("max-claims"),
		MaxWindow:           c.Uint64("max-window"),
		MaxStateBytes:       c.Uint64("max-state-bytes"),
		MaxSessionBytes:     c.Uint64("max-session-bytes"),
	}
	for _, field := range []struct {
		flag string
		to   *uint32
	}{{"min-ttl", &s.MinTtlMs}, {"max-ttl", &s.MaxTtlMs}, {"default-ttl", &s.DefaultTtlMs}} {
		d := c.Duration(field.flag)
		if d < time.Millisecond || d%time.Millisecond != 0 || d.Milliseconds() > math.MaxInt32 {
			return nil, fmt.Errorf("--%s %v: whole milliseconds, from 1ms to %v", field.flag, d, ttl(math.MaxInt32))
		}
		*field.to = uint32(d.Milliseconds())
	}
	for _, field := range []struct {
		flag string
		to   *uint32
	}{{"max-value-bytes", &s.MaxValueBytes}, {"max-client-info-bytes", &s.MaxClientInfoBytes}} {
		n := c.Uint(field.flag)
		if n > 64<<10 {
			return nil, fmt.Errorf("--%s %d: at most %d", field.flag, n, 64<<10)
		}
		*field.to = uint32(n)
	}
	return s, nil
}

// parseCluster reads n1=host:port,n2=host:port.
func parseCluster(text string) ([]server.Peer, error) {
	if text == "" {
		return nil, nil
	}
	var peers []server.Peer
	for entry := range strings.SplitSeq(text, ",") {
		id, addr, ok := strings.Cut(strings.TrimSpace(entry), "=")
		if !ok || id == "" || addr == "" {
			return nil, fmt.Errorf("%q is not of the form id=host:port", entry)
		}
		peers = append(peers, server.Peer{ID: id, Addr: addr})
	}
	return peers, nil
}
