package seeds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Resolver looks names up. *net.Resolver implements it.
type Resolver interface {
	LookupHost(ctx context.Context, host string) (addrs []string, err error)
	LookupSRV(ctx context.Context, service, proto, name string) (cname string, records []*net.SRV, err error)
}

// Check returns an error unless a seed is host:port or the name of an SRV record.
func Check(seed string) error {
	if isSRV(seed) {
		return nil
	}
	host, port, err := net.SplitHostPort(seed)
	if err != nil || host == "" {
		return errors.New("give host:port, or the name of an SRV record, as _quorumlock._tcp.example.org")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("port %q is not a number from 1 to 65535", port)
	}
	return nil
}

// isSRV reports whether a seed is the name of an SRV record.
func isSRV(seed string) bool { return strings.HasPrefix(seed, "_") && !strings.Contains(seed, ":") }

// Resolve returns the addresses, host:port, that the seeds have at present, each once. A host that cannot be resolved is
// returned as it is, so that the error shows when it is dialled. failed has the SRV records that cannot be resolved.
func Resolve(ctx context.Context, r Resolver, seeds []string) (addrs []string, failed error) {
	for _, seed := range seeds {
		if !isSRV(seed) {
			addrs = append(addrs, hosts(ctx, r, seed)...)
			continue
		}
		_, records, err := r.LookupSRV(ctx, "", "", seed)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("look up %s: %w", seed, err))
		}
		for _, record := range records {
			target := net.JoinHostPort(strings.TrimSuffix(record.Target, "."), strconv.Itoa(int(record.Port)))
			addrs = append(addrs, hosts(ctx, r, target)...)
		}
	}
	slices.Sort(addrs)
	return slices.Compact(addrs), failed
}

// hosts returns all addresses of host:port.
func hosts(ctx context.Context, r Resolver, addr string) []string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return []string{addr}
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return []string{addr}
	}
	found, err := r.LookupHost(ctx, host)
	if err != nil {
		return []string{addr}
	}
	for i := range found {
		found[i] = net.JoinHostPort(found[i], port)
	}
	return found
}
