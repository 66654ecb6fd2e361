package server

import (
	"context"
	"fmt"
	"net"
	"strconv"
)

// listeners are the node's ports. Each is closed by the part that it was given to;
// close is for those that never were.
type listeners struct{ peer, client, http, health net.Listener }

func (l *listeners) close() {
	for _, port := range []net.Listener{l.peer, l.client, l.http, l.health} {
		if port != nil {
			_ = port.Close() // closing one that its part has closed already does no harm
		}
	}
}

// listen binds every port, and settles the addresses that others are told.
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
		{"health", n.cfg.HealthAddr, "", &l.health, &n.healthAt, new(string)},
	} {
		if p.addr == "" {
			continue
		}
		listener, err := n.cfg.Network.Listen(ctx, p.addr)
		if err != nil {
			l.close()
			return nil, fmt.Errorf("%w on --%s-addr %s: %w", ErrListen, p.name, p.addr, err)
		}
		*p.listener, *p.boundAt = listener, listener.Addr().String()
		*p.announced = announce(p.addr, p.advertise, listener.Addr())
	}
	return l, nil
}

// advertisedPeer prefers what was said to what the others were told of this node.
func (c Config) advertisedPeer() string {
	if c.Advertise.Peer != "" {
		return c.Advertise.Peer
	}
	return c.ownEntry()
}

// announce is the address that others are told: the one given, or the one asked for with
// the port that it became. The host stays as it was written, since certificates name it.
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
