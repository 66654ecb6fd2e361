package system

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// System is a lock service that can be started on this machine.
type System interface {
	// Name is its name on the command line and in the figures.
	Name() string
	// Title is its name for readers.
	Title() string
	// Needs returns the programs and files that it requires.
	Needs() []Need
	// Version returns its version. Its needs must be met.
	Version(ctx context.Context) (string, error)
	// Start starts its servers with their data below dir, which is empty, and waits until all of them serve.
	// If it fails, nothing is left running.
	Start(ctx context.Context, dir string) (*Cluster, error)
}

// Client is a connection to a system, or as many as its library makes for one client.
type Client interface {
	// Open opens a session that expires if the system does not hear from it for ttl. It also ends with ctx,
	// so ctx must not have a timeout for this call. It returns ErrOneSession if a connection can only have
	// one session.
	Open(ctx context.Context, ttl time.Duration) (Session, error)
	// Close ends the connection.
	Close() error
}

// Session takes locks. Only one goroutine may use it, unless the system allows more.
type Session interface {
	// Lock waits until the lock is granted.
	Lock(ctx context.Context, name string) (Hold, error)
	// Close ends the session and its holds.
	Close(ctx context.Context) error
}

// Hold is a lock held.
type Hold interface {
	Unlock(ctx context.Context) error
}

// Ordered is a hold of a system that guarantees an order.
type Ordered interface {
	Hold
	// Arrived and Granted return numbers that increase in the order in which the system received requests and
	// granted locks.
	Arrived() uint64
	Granted() uint64
}

// Need is a required file: a program if it contains no slash.
type Need struct {
	File string
	// Package is the Debian package that contains it; empty if the build creates it.
	Package string
}

// Names of the systems.
const (
	Quorumlock              = "quorumlock"
	QuorumlockTLS           = "quorumlock-tls"
	QuorumlockCached        = "quorumlock-cached"
	QuorumlockRedis         = "quorumlock-redis"
	QuorumlockRedisFollower = "quorumlock-redis-follower"
	Etcd                    = "etcd"
	ZooKeeper               = "zookeeper"
	Redis                   = "redis"
	RedisAlways             = "redis-always"
	Redlock                 = "redlock"
	RedlockAlways           = "redlock-always"
)

// Own are the systems that are built from this tree.
var Own = []string{Quorumlock, QuorumlockTLS, QuorumlockCached, QuorumlockRedis, QuorumlockRedisFollower}

// All returns all systems. bin is the absolute path of the programs that the build creates.
func All(bin string) []System {
	return []System{
		quorumlock{bin: bin},
		quorumlock{bin: bin, tls: true},
		quorumlock{bin: bin, cached: true},
		redisPort{quorumlock: quorumlock{bin: bin}},
		redisPort{quorumlock: quorumlock{bin: bin}, follower: true},
		etcd{program: filepath.Join(bin, "compare", "etcd")},
		zookeeper{},
		oneRedis{},
		oneRedis{always: true},
		redlock{},
		redlock{always: true},
	}
}

// Names returns the names of all systems.
func Names() []string {
	var names []string
	for _, s := range All("") {
		names = append(names, s.Name())
	}
	return names
}

// Named returns the systems with those names, in the order of All.
func Named(bin string, names []string) ([]System, error) {
	for _, name := range names {
		if !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("there is no system %q; there are %s", name, strings.Join(Names(), ", "))
		}
	}
	return slices.DeleteFunc(All(bin), func(s System) bool { return !slices.Contains(names, s.Name()) }), nil
}

// Title returns the title of the system with that name.
func Title(name string) string {
	for _, s := range All("") {
		if s.Name() == name {
			return s.Title()
		}
	}
	return name
}
