package model

import (
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// quotaOf returns the quota that bounds an identity; nil if none does.
func (d *Model) quotaOf(who string) *wire.Quota {
	var best *wire.Quota
	for _, q := range d.Policy.GetQuotas() {
		switch {
		case q.Identity == who && who != "":
			return q
		case strings.Contains(q.Identity, "*") && alike(q.Identity, who) && (best == nil || len(q.Identity) > len(best.Identity)):
			best = q
		}
	}
	return best
}

// sessionsOf returns the sessions of an identity.
func (d *Model) sessionsOf(who string) []*Session {
	var all []*Session
	for _, s := range d.Live {
		if s.Identity == who {
			all = append(all, s)
		}
	}
	return all
}

// roomForSession reports whether an identity may open another session.
func (d *Model) roomForSession(who string) bool {
	most, mine := int(d.quotaOf(who).GetSessions()), len(d.sessionsOf(who))
	if most == 0 && d.Policy != nil {
		return mine < int(d.Limits.MaxSessions)-len(d.Live)
	}
	return most == 0 || mine < most
}

// roomForNames reports whether the quotas allow claims on more locks: those of the identity, and those of the places
// that the locks are in.
func (d *Model) roomForNames(who string, locks []*wire.LockRequest) bool {
	if d.Policy == nil {
		return true // only a policy has quotas
	}
	names, unknown := 0, 0
	for _, s := range d.sessionsOf(who) {
		names += int(d.Names(s.ID))
	}
	for _, l := range locks {
		if d.Locks[l.Name] == nil {
			unknown++
		}
	}
	switch most := int(d.quotaOf(who).GetClaims()); {
	case most != 0 && names+len(locks) > most:
		return false
	case most == 0 && d.Policy != nil && unknown > 0 && names+unknown > int(d.Limits.MaxLocks)-len(d.Locks):
		return false
	}
	for _, q := range d.Policy.GetQuotas() {
		more := 0
		for _, l := range locks {
			if q.Prefix != "" && concerns(&wire.LockRule{Prefix: q.Prefix}, l.Name) {
				more++
			}
		}
		if more > 0 && d.namesIn(q.Prefix)+more > int(q.Claims) {
			return false
		}
	}
	return true
}

// namesIn counts the locks in a place that holds and waits name, once for each.
func (d *Model) namesIn(place string) (n int) {
	for _, c := range d.Claims {
		if c.Over {
			continue
		}
		for i, l := range c.Locks {
			if !concerns(&wire.LockRule{Prefix: place}, l.Name) {
				continue
			}
			n++
			if i == 0 && c.Upgrade != nil {
				n++
			}
		}
	}
	return n
}

// roomForBytes reports whether the sessions of an identity together may grow by more bytes.
func (d *Model) roomForBytes(who string, more int) bool {
	most := int(d.quotaOf(who).GetBytes())
	if most == 0 {
		if d.Policy == nil {
			return true
		}
		most = int(d.Limits.MaxStateBytes) - d.Weight() - roomForOperators - more
	}
	for _, s := range d.sessionsOf(who) {
		more += d.WeightOf(s)
	}
	return more <= most
}

func validQuotas(quotas []*wire.Quota) bool {
	seen := map[string]bool{}
	for _, q := range quotas {
		place, who := q.GetPrefix(), q.GetIdentity()
		local := q.GetWatches() + q.GetConnections() + q.GetRequestsPerSecond()
		switch {
		case (place == "") == (who == ""), seen[who+"|"+place]:
			return false
		case place == "" && (!validIdentity(who) || q.Sessions == 0 && q.Claims == 0 && q.Bytes == 0 && local == 0):
			return false
		case place != "" && (q.Claims == 0 || q.Sessions != 0 || q.Bytes != 0 || local != 0):
			return false
		case place != "" && place != "/" && (!strings.HasSuffix(place, "/") || !validName(strings.TrimSuffix(place, "/"))):
			return false
		}
		seen[who+"|"+place] = true
	}
	return len(quotas) <= 10_000
}
