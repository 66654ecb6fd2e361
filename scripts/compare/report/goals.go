package report

import "github.com/quorumlock/quorumlock/scripts/compare/system"

// measure is a figure of Quorumlock that is compared with others.
type measure struct {
	what   string
	figure string
	unit   unit
	rivals []rival
	system string
}

// compare returns the comparison of a figure of Quorumlock.
func compare(what, figure string, unit unit, rivals ...rival) measure {
	return measure{what, figure, unit, rivals, system.Quorumlock}
}

// of takes the figure from a variant of Quorumlock instead.
func (m measure) of(variant string) measure {
	m.system = variant
	return m
}

// rival is what a figure is compared with, and the goal for the ratio of the two: an upper bound for figures
// of which less is better, and a lower bound for others.
type rival struct {
	system string // empty if the goal is for the figure itself
	figure string // empty if it is the same as Quorumlock's
	as     string // name for readers; empty means the system's title
	goal   float64
	aims   bool // whether there is a goal
}

// to compares with another system, with a goal for the ratio.
func to(name string, goal float64) rival { return rival{system: name, goal: goal, aims: true} }

// beside compares with another system, without a goal.
func beside(name string) rival { return rival{system: name} }

// itself compares with another figure of Quorumlock.
func itself(figure, as string, goal float64) rival {
	return rival{system: system.Quorumlock, figure: figure, as: "itself, " + as, goal: goal, aims: true}
}

// sibling compares with the same figure of another variant of Quorumlock.
func sibling(variant, as string, goal float64) rival {
	return rival{system: variant, as: "itself, " + as, goal: goal, aims: true}
}

// uncached compares a cached figure with that of locks that are not cached, of Quorumlock or of another system.
func uncached(name, figure string) rival {
	r := rival{system: name, figure: figure}
	if name == system.Quorumlock {
		r.as = "itself, not cached"
	}
	return r
}

// bound is a goal for the figure itself.
func bound(goal float64) rival { return rival{goal: goal, aims: true} }

// Short names for the systems.
const (
	own       = system.Quorumlock
	etcd      = system.Etcd
	zookeeper = system.ZooKeeper
	redlock   = system.Redlock
	redis     = system.Redis
	always    = system.RedisAlways
	// redlockAlways is the rival of the Redis port: five servers that keep what they acknowledge, as three nodes do.
	redlockAlways = system.RedlockAlways
)

// measures are all comparisons, in the order of the table. Their sizes are those of a real comparison.
var measures = []measure{
	compare("lock+unlock pairs/s, 1 client", "pairs/1/perSecond", perSecond,
		to(etcd, 2), to(zookeeper, 1.7), beside(redlock), beside(redis), beside(always)),
	compare("pairs/s, 16 clients", "pairs/16/perSecond", perSecond,
		to(etcd, 4.5), to(zookeeper, 3.5), to(redlock, 1.2), beside(redis), beside(always)),
	compare("pairs/s, 128 clients", "pairs/128/perSecond", perSecond,
		to(etcd, 8), to(zookeeper, 4.5), to(redlock, 5), to(redis, 0.5), beside(always)),
	compare("pairs/s, 1,024 clients", "pairs/1024/perSecond", perSecond,
		to(etcd, 10), to(zookeeper, 5.5), beside(redlock), beside(redis), to(always, 0.8)),
	compare("pairs/s, 1,024 clients sharing 16 connections", "shared/perSecond", perSecond,
		to(etcd, 30)),
	compare("lock, p50, 1 client", "pairs/1/p50Ms", milliseconds,
		to(etcd, 0.5), to(zookeeper, 0.65), beside(redlock), beside(redis), beside(always)),
	compare("lock, p99, 128 clients", "pairs/128/p99Ms", milliseconds,
		beside(etcd), beside(zookeeper), beside(redlock), beside(redis), beside(always)),

	compare("hand-overs/s of one hot lock, 16 waiters", "hot/16/perSecond", perSecond,
		to(etcd, 12), to(zookeeper, 2.8)),
	compare("hand-overs/s, 128 waiters", "hot/128/perSecond", perSecond,
		to(etcd, 7), to(zookeeper, 2.8)),
	compare("hand-overs/s, 1,000 waiters", "hot/1000/perSecond", perSecond,
		to(etcd, 13), to(zookeeper, 2.8)),
	compare("hand-overs/s, 10,000 waiters", "long-queue/perSecond", perSecond,
		itself("hot/16/perSecond", "16 waiters", 0.8)),
	compare("grants out of order, 1,000 waiters", "hot/1000/outOfOrder", faults,
		bound(0)),
	compare("grants out of order, 10,000 waiters", "long-queue/outOfOrder", faults,
		bound(0)),

	compare("servers' CPU for 1,000 pairs, 128 clients", "pairs/128/cpuMsPer1000", milliseconds,
		to(etcd, 0.15), to(zookeeper, 0.25), beside(redlock), beside(redis), beside(always)),
	compare("servers' CPU in a second, 10,000 idle sessions", "idle/cpuMsPerSecond", milliseconds,
		to(etcd, 0.2), to(zookeeper, 0.25)),
	compare("memory of an idle session, all nodes together", "idle/bytesPerSession", bytes,
		bound(8<<10), beside(etcd), beside(zookeeper)),
	compare("memory of a held lock, for each node, 100,000 held", "held/bytesPerLock", bytes,
		bound(250), to(etcd, 0.25), to(zookeeper, 0.07)),

	compare("servers' CPU for 1,000 pairs, beside 1,000,000 held locks", "full/many/cpuMsPer1000", milliseconds,
		itself("full/few/cpuMsPer1000", "beside 1,000", 1.3)),
	compare("time of a pair, beside 1,000,000 held locks", "full/many/pairMs", milliseconds,
		itself("full/few/pairMs", "beside 1,000", 1.3)),
	compare("pairs/s with TLS, 128 clients", "tls/perSecond", perSecond,
		itself("tls/perSecond", "without TLS", 0.7)).of(system.QuorumlockTLS),

	compare("pairs/s, 1 client, cached", "cached/1/perSecond", perSecond,
		uncached(own, "cached/1/perSecond"), uncached(etcd, "pairs/1/perSecond"), uncached(zookeeper, "pairs/1/perSecond"),
		uncached(redis, "pairs/1/perSecond")).of(system.QuorumlockCached),
	compare("pairs/s, 128 clients, cached", "cached/128/perSecond", perSecond,
		uncached(own, "cached/128/perSecond"), uncached(etcd, "pairs/128/perSecond"), uncached(zookeeper, "pairs/128/perSecond"),
		uncached(redis, "pairs/128/perSecond")).of(system.QuorumlockCached),
	compare("servers' CPU for 1,000 pairs, 128 clients, cached", "cached/128/cpuMsPer1000", milliseconds,
		uncached(own, "cached/128/cpuMsPer1000")).of(system.QuorumlockCached),
	compare("hand-overs/s of one hot lock, 16 clients, cached", "cached/hot/perSecond", perSecond,
		uncached(own, "cached/hot/perSecond")).of(system.QuorumlockCached),

	compare("pairs/s through the leader's Redis port, 128 clients", "redis-port/perSecond", perSecond,
		to(always, 0.45), to(redlockAlways, 4)).of(system.QuorumlockRedis),
	compare("pairs/s through a follower's Redis port, 128 clients", "redis-port/perSecond", perSecond,
		sibling(system.QuorumlockRedis, "the leader's", 0.6)).of(system.QuorumlockRedisFollower),
	compare("lock, p99, through the leader's Redis port, 128 clients", "redis-port/p99Ms", milliseconds,
		beside(always), beside(redlockAlways)).of(system.QuorumlockRedis),
	compare("servers' CPU for 1,000 pairs through the leader's Redis port", "redis-port/cpuMsPer1000", milliseconds,
		beside(always), beside(redlockAlways)).of(system.QuorumlockRedis),
}
