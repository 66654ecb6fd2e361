package rights

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// quotas are the quotas of a compiled policy.
type quotas struct {
	// exact are those of identities, patterns those of patterns, the longest first, prefixes those of lock prefixes.
	exact    map[string]*wire.Quota
	patterns []*wire.Quota
	prefixes map[string]*wire.Quota
}

func compileQuotas(list []*wire.Quota) (q quotas, err error) {
	if len(list) > maxBindings {
		return q, fmt.Errorf("%w: it has %d quotas, at most %d are allowed", ErrInvalid, len(list), maxBindings)
	}
	q.exact, q.prefixes = map[string]*wire.Quota{}, map[string]*wire.Quota{}
	seen := map[[2]string]bool{}
	for _, quota := range list {
		key := [2]string{quota.GetIdentity(), quota.GetPrefix()}
		if err := checkQuota(quota); err != nil {
			return q, fmt.Errorf("%w: quota of %.80q: %w", ErrInvalid, cmp.Or(key[0], key[1]), err)
		}
		if seen[key] {
			return q, fmt.Errorf("%w: %.80q has two quotas: merge them", ErrInvalid, cmp.Or(key[0], key[1]))
		}
		seen[key] = true
		switch {
		case quota.Prefix != "":
			q.prefixes[quota.Prefix] = quota
		case strings.Contains(quota.Identity, "*"):
			q.patterns = append(q.patterns, quota)
		default:
			q.exact[quota.Identity] = quota
		}
	}
	slices.SortStableFunc(q.patterns, func(a, b *wire.Quota) int { return len(b.Identity) - len(a.Identity) })
	return q, nil
}

func checkQuota(q *wire.Quota) error {
	switch {
	case (q.GetIdentity() == "") == (q.GetPrefix() == ""):
		return errors.New("a quota has either an identity or a prefix")
	case q.Sessions|q.Claims|q.Bytes|q.Watches|q.Connections|q.RequestsPerSecond == 0:
		return errors.New("it has no limit: give at least one, or remove the quota")
	case q.Prefix == "":
		return ValidIdentity(q.Identity)
	case q.Sessions|q.Bytes|q.Watches|q.Connections|q.RequestsPerSecond != 0:
		return errors.New("the quota of a prefix can bound only claims")
	}
	return checkPrefix(q.Prefix)
}

// Quota returns the quota of an identity: the one that names it, or else the one with the longest matching pattern, of
// several of that length the first in the policy. It returns nil if there is none.
func (c *Policy) Quota(identity string) *wire.Quota {
	if c == nil {
		return nil
	}
	if q := c.quotas.exact[identity]; q != nil {
		return q
	}
	for _, q := range c.quotas.patterns {
		if matches(q.Identity, identity) {
			return q
		}
	}
	return nil
}

// QuotasBelow calls fn with each quota of a prefix that covers a lock, the shortest prefix first, until it returns
// false.
func (c *Policy) QuotasBelow(lock string, fn func(*wire.Quota) bool) {
	if c == nil || len(c.quotas.prefixes) == 0 {
		return
	}
	if q := c.quotas.prefixes[All]; q != nil && !fn(q) {
		return
	}
	for i := range len(lock) {
		if lock[i] != '/' {
			continue
		}
		if q := c.quotas.prefixes[lock[:i+1]]; q != nil && !fn(q) {
			return
		}
	}
}

// PrefixQuotas returns the quotas of prefixes, ordered by prefix.
func (c *Policy) PrefixQuotas() (all []*wire.Quota) {
	if c == nil {
		return nil
	}
	for _, q := range c.quotas.prefixes {
		all = append(all, q)
	}
	slices.SortFunc(all, func(a, b *wire.Quota) int { return strings.Compare(a.Prefix, b.Prefix) })
	return all
}

// HasPrefixQuotas reports whether the policy has a quota of a prefix.
func (c *Policy) HasPrefixQuotas() bool { return c != nil && len(c.quotas.prefixes) > 0 }

// HasQuotas reports whether the policy has a quota of an identity.
func (c *Policy) HasQuotas() bool { return c != nil && len(c.quotas.exact)+len(c.quotas.patterns) > 0 }
