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
	// Name is its word on the command line and in the figures.
	Name() string
	// Title is its name for readers.
	Title() string
	// Needs are the programs and files without which it cannot be started.
	Needs() []Need
	// Version says which one it is. Its needs are there.
	Version(ctx context.Context) (string, error)
	// Start starts its servers with their data below dir, which is empty, and waits until
	// all of them serve. If it fails nothing is left running.
	Start(ctx context.Context, dir string) (*Cluster, error)
}

// Client is a connection to a system, or as many as its library makes of one client.
type Client interface {
	// Open opens a session that ends by itself once nothing was heard of it for ttl. It
	// lives no longer than ctx, which therefore carries no time-out of this call.
	// ErrOneSession is returned where a connection can have only one.
	Open(ctx context.Context, ttl time.Duration) (Session, error)
	// Close ends the connection.
	Close() error
}

// Session is one that takes locks. One goroutine uses it, unless the system allows more.
type Session interface {
	// Lock waits until it has the lock.
	Lock(ctx context.Context, name string) (Hold, error)
	// Close ends the session, and with it what it still holds.
	Close(ctx context.Context) error
}

// Hold is a lock held.
type Hold interface {
	Unlock(ctx context.Context) error
}

// Ordered is a hold of a system that promises an order.
type Ordered interface {
	Hold
	// Arrived says when the lock was asked for, and Granted when it was given: numbers
	// that rise in the order in which the system did either.
	Arrived() uint64
	Granted() uint64
}

// Need is a file that must be there: a program where it has no slash.
type Need struct {
	File string
	// Package is the Debian package that has it; empty if the build makes it.
	Package string
}

// The names of the systems.
const (
	Quorumlock    = "quorumlock"
	QuorumlockTLS = "quorumlock-tls"
	Etcd          = "etcd"
	ZooKeeper     = "zookeeper"
	Redis         = "redis"
	RedisAlways   = "redis-always"
	Redlock       = "redlock"
)

// All are the systems. Programs that the build makes are in bin, an absolute path.
func All(bin string) []System {
	return []System{
		quorumlock{bin: bin},
		quorumlock{bin: bin, tls: true},
		etcd{program: filepath.Join(bin, "compare", "etcd")},
		zookeeper{},
		oneRedis{},
		oneRedis{always: true},
		redlock{},
	}
}

// Names are those of all systems.
func Names() []string {
	var names []string
	for _, s := range All("") {
		names = append(names, s.Name())
	}
	return names
}

// Named are the systems of those names, in the order of All.
func Named(bin string, names []string) ([]System, error) {
	for _, name := range names {
		if !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("there is no system %q; there are %s", name, strings.Join(Names(), ", "))
		}
	}
	return slices.DeleteFunc(All(bin), func(s System) bool { return !slices.Contains(names, s.Name()) }), nil
}

// Title is how readers know the system of that name.
func Title(name string) string {
	for _, s := range All("") {
		if s.Name() == name {
			return s.Title()
		}
	}
	return name
}
