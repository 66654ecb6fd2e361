package script_test

import (
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/server/redis/script"
)

// entry is a key's value and TTL. An absent key has none.
type entry struct {
	value string
	ttl   time.Duration
}

// caller is the operation of a caller.
type caller struct{ script.Call }

// keyspace models Redis and the state machine: the keys that exist.
type keyspace map[string]entry

// execute executes an operation as package script documents it, and returns the answer in RESP2. A remaining time is
// answered as it was at first.
func (k keyspace) execute(c caller) string {
	outcome, changed := k.apply(c)
	reply, ok := c.Replies[outcome]
	if !ok {
		return fmt.Sprintf("no reply for outcome %d", outcome)
	}
	first := k[string(c.Keys[0])]
	switch reply.Kind {
	case script.Integer:
		return fmt.Sprintf(":%d", reply.Integer)
	case script.Status:
		return "+" + reply.Text
	case script.Bulk:
		return "$" + reply.Text
	case script.Value:
		if c.Action == script.Read {
			return "$" + first.value
		}
		return "$" + string(c.Value)
	case script.Count:
		return fmt.Sprintf(":%d", changed)
	case script.Keys:
		return fmt.Sprintf(":%d", len(c.Keys))
	case script.Error:
		return "-" + reply.Text
	case script.ValuePTTL:
		if outcome == script.Absent {
			return "*2 $-1 :-2"
		}
		return fmt.Sprintf("*2 $%s :%d", first.value, first.ttl.Milliseconds())
	case script.PTTL:
		shortest := first.ttl
		for _, key := range c.Keys {
			shortest = min(shortest, k[string(key)].ttl)
		}
		return fmt.Sprintf(":%d", shortest.Milliseconds())
	}
	return "$-1"
}

// apply changes the keys, and returns the outcome and how many changed.
func (k keyspace) apply(c caller) (script.Outcome, int) {
	var absent, owned []string
	failed, failure := false, script.Absent
	for _, key := range c.Keys {
		e, exists := k[string(key)]
		switch {
		case !exists:
			absent = append(absent, string(key))
		case c.Action == script.Read || c.owns(e):
			owned = append(owned, string(key))
			continue
		}
		if !failed && exists {
			failure = script.Other
		}
		failed = true
	}
	allAbsent, allOwned := len(absent) == len(c.Keys), len(owned) == len(c.Keys)
	switch c.Action {
	case script.Acquire, script.AcquireOrExtend:
		switch {
		case allAbsent:
			return script.Done, k.set(absent, c)
		case allOwned && c.Action == script.AcquireOrExtend:
			return script.Extended, k.set(owned, c)
		}
		return script.Other, 0
	case script.Release:
		if len(owned) > 0 {
			return script.Done, k.remove(owned)
		}
		return failure, 0
	}
	if !allOwned {
		return failure, 0
	}
	switch c.Action {
	case script.Extend:
		return script.Done, k.set(owned, c)
	case script.AddTTL:
		c.TTL += k[owned[0]].ttl
		return script.Done, k.set(owned, c)
	case script.ReleaseAll:
		return script.Done, k.remove(owned)
	}
	return script.Done, 0
}

// owns reports whether a key with this entry is the caller's.
func (c caller) owns(e entry) bool {
	if n := c.CompareBytes; n != 0 {
		return len(e.value) >= n && e.value[:n] == string(c.Value[:n])
	}
	return e.value == string(c.Value)
}

// set gives keys the caller's value and TTL, and returns how many they are.
func (k keyspace) set(keys []string, c caller) int {
	for _, key := range keys {
		k[key] = entry{string(c.Value), c.TTL}
	}
	return len(keys)
}

func (k keyspace) remove(keys []string) int {
	for _, key := range keys {
		delete(k, key)
	}
	return len(keys)
}
