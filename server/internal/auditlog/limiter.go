package auditlog

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// denialInterval is how often a denial of the same caller is written.
	denialInterval = time.Second
	// maxDenied bounds the callers that a limiter remembers.
	maxDenied = 256
	// denialRate bounds the denials of all callers of a limiter, per second and at once.
	denialRate = 20
)

// limiter limits the lines about denials by caller and in total. It is safe for concurrent use.
type limiter struct {
	mu     sync.Mutex // guards the fields below
	all    map[string]*list.Element
	recent list.List // of *recentCaller, the most recently denied first
	total  *rate.Limiter
	others uint64 // suppressed denials of callers that were forgotten
}

type recentCaller struct {
	key        string
	next       time.Time
	suppressed uint64
}

// suppressed counts denials that were not written.
type suppressed struct{ same, others uint64 }

func newLimiter() *limiter {
	return &limiter{all: map[string]*list.Element{}, total: rate.NewLimiter(denialRate, denialRate)}
}

// allow reports whether a denial may be written, and how many before it were not.
func (l *limiter) allow(key string, now time.Time) (s suppressed, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.caller(key)
	if now.Before(c.next) || !l.total.AllowN(now, 1) {
		c.suppressed++
		return suppressed{}, false
	}
	s = suppressed{c.suppressed, l.others}
	c.next, c.suppressed, l.others = now.Add(denialInterval), 0, 0
	return s, true
}

// caller returns a caller, and forgets the one that was not denied for the longest time if there are too many.
func (l *limiter) caller(key string) *recentCaller {
	if e, ok := l.all[key]; ok {
		l.recent.MoveToFront(e)
		return e.Value.(*recentCaller)
	}
	if len(l.all) >= maxDenied {
		oldest := l.recent.Remove(l.recent.Back()).(*recentCaller)
		delete(l.all, oldest.key)
		l.others += oldest.suppressed
	}
	c := &recentCaller{key: key}
	l.all[key] = l.recent.PushFront(c)
	return c
}

// keyOf returns what limits the denials of a caller: its identity if that was verified, otherwise its address.
func keyOf(caller *wire.Caller) (key string, verified bool) {
	if who := caller.GetIdentity(); who != "" && who != identity.Anonymous {
		return who, true
	}
	return network(caller.GetAddress()), false
}

// network returns the part of an address that a single sender cannot choose: the address without the port, and the
// first 64 bits for IPv6.
func network(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Unmap().Is4() {
		return host
	}
	prefix, _ := ip.WithZone("").Prefix(64)
	return prefix.String()
}
