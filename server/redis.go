package server

import (
	"net"

	"github.com/quorumlock/quorumlock/server/redis"
	"github.com/quorumlock/quorumlock/server/rpc"
)

func (n *Node) startRedis(l net.Listener) error {
	tlsConfig, err := n.cfg.rpcTLS(n.certs)
	if err != nil {
		return err
	}
	n.redis, err = redis.Serve(redis.Config{
		Listener:         l,
		Service:          n.keys,
		Source:           n.replica,
		NodeID:           n.cfg.ID,
		ClusterID:        n.clusterID,
		Version:          n.cfg.Version,
		TLS:              tlsConfig,
		Certificates:     n.certs.client,
		RequireIdentity:  n.cfg.TLS.CA != "",
		CertifiedCluster: n.certified,
		Quotas:           n.quotas,
		Turn:             n.queues.Reads.Enter,
		Buffers:          n.buffers,
		Denials:          n.audit.Deny,
		Logger:           n.log.Named("redis"),
		Registry:         n.cfg.Registry,
		Options:          n.cfg.Redis,
		Limits:           redisLimits(n.cfg.Limits),
	})
	return err
}

// redisLimits are those of the client port. Each of the two ports has as many connections of its own.
func redisLimits(l rpc.Limits) redis.Limits {
	return redis.Limits{
		MaxConnections:   l.MaxConnections,
		MaxHandshakes:    l.MaxHandshakes,
		HandshakeTimeout: l.HandshakeTimeout,
		FrameTimeout:     l.FrameTimeout,
		IdleTimeout:      l.IdleTimeout,
	}
}
