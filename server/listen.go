package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"syscall"
)

// listeners holds the node's listeners. Each is closed by the part it was handed to; close closes those that
// were never handed over.
type listeners struct{ peer, client, http, redis, health net.Listener }

func (l *listeners) close() {
	for _, port := range []net.Listener{l.peer, l.client, l.http, l.redis, l.health} {
		if port != nil {
			_ = port.Close() // harmless if the owner has already closed it
		}
	}
}

// listen binds every port and determines the advertised addresses.
func (n *Node) listen(ctx context.Context) (*listeners, error) {
	l := &listeners{}
	for _, p := range []struct {
		name               string
		addr, advertise    string
		listener           *net.Listener
		boundAt, announced *string
	}{
		{"peer", n.cfg.Listen.Peer, n.cfg.advertisedPeer(), &l.peer, &n.bound.Peer, &n.tell.Peer},
		{"client", n.cfg.Listen.Client, n.cfg.Advertise.Client, &l.client, &n.bound.Client, &n.tell.Client},
		{"http", n.cfg.Listen.HTTP, n.cfg.Advertise.HTTP, &l.http, &n.bound.HTTP, &n.tell.HTTP},
		{"redis", n.cfg.RedisAddr, "", &l.redis, &n.redisAt, new(string)},
		{"health", n.cfg.HealthAddr, "", &l.health, &n.healthAt, new(string)},
	} {
		if p.addr == "" {
			continue
		}
		listener, err := n.cfg.Network.Listen(ctx, p.addr)
		if err != nil {
			l.close()
			return nil, fmt.Errorf("%w on --%s-addr %s: %s: %w", ErrListen, p.name, p.addr, listenRemedy(err), err)
		}
		*p.listener, *p.boundAt = listener, listener.Addr().String()
		*p.announced = announce(p.addr, p.advertise, listener.Addr())
	}
	return l, nil
}

// listenRemedy returns what to do about an address that cannot be bound.
func listenRemedy(err error) string {
	unknown := (*net.DNSError)(nil)
	switch {
	case errors.As(err, &unknown):
		return "the name does not resolve, give an IP address of this machine or correct the name"
	case errors.Is(err, syscall.EADDRINUSE):
		return "another process uses the port, end that or give another port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "no interface of this machine has the address, give one that has, or 0.0.0.0 for all"
	case errors.Is(err, fs.ErrPermission):
		return "this user may not bind the port, give one above 1023"
	}
	return "give another address"
}

// advertisedPeer returns the configured peer address or, by default, this node's own entry in Cluster.
func (c Config) advertisedPeer() string {
	if c.Advertise.Peer != "" {
		return c.Advertise.Peer
	}
	return c.ownEntry()
}

// announce returns the address to advertise: the configured one or, by default, the listen address with its
// port resolved. The host stays as configured, since certificates name it.
func announce(asked, advertise string, bound net.Addr) string {
	if advertise != "" {
		return advertise
	}
	host, port, _ := splitAddr(asked) // Validate has checked it
	if port != 0 {
		return asked
	}
	_, port, err := splitAddr(bound.String())
	if err != nil {
		return bound.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}
