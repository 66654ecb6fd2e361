package history

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// KeyAction is what a request of a Redis client does.
type KeyAction string

// Actions of Redis clients.
const (
	AcquireKey KeyAction = "acquire" // SET with NX
	AwaitKey   KeyAction = "wait"    // QL.LOCK
	ExtendKey  KeyAction = "extend"  // a script that compares and expires
	ReleaseKey KeyAction = "release" // a script that compares and deletes
	ReadToken  KeyAction = "token"   // QL.TOKEN
)

// KeyRequest is one request of a Redis client for one key. A retry is another one.
type KeyRequest struct {
	Client string
	Conn   uint64
	Action KeyAction
	// Lock is the key, and the name of its lock.
	Lock, Value string
	TTL         time.Duration
	// Call is the time before it was sent, Return the time after its reply arrived, or Never.
	Call, Return time.Duration
	// Outcome is Fail if the reply is an error: the port closes the connection if a request may have been executed.
	Outcome Outcome
	// Done is set if the reply says that the key was acquired, extended or released, or contains the token.
	Done bool
	// Token is the token in the reply.
	Token uint64
	// Reply is for people.
	Reply string
}

// KeyRequests returns all requests of Redis clients, ordered by their call.
func (h *History) KeyRequests() []*KeyRequest {
	var all []*KeyRequest
	for _, r := range h.Records {
		if r.Key != nil {
			all = append(all, r.Key)
		}
	}
	slices.SortStableFunc(all, func(a, b *KeyRequest) int { return cmp.Compare(a.Call, b.Call) })
	return all
}

// answer records the reply. It reports whether the reply is one that the action can have.
func (k *KeyRequest) answer(reply respValue) bool {
	k.Reply = reply.text
	if reply.kind == respError {
		k.Outcome = Fail
		return true
	}
	k.Outcome = OK
	switch {
	case reply.null:
		k.Reply = "nil"
		return k.Action == AcquireKey || k.Action == AwaitKey || k.Action == ReadToken
	case k.Action == AcquireKey:
		k.Done = reply.text == "OK"
		return k.Done
	case k.Action == AwaitKey, k.Action == ReadToken:
		k.Token, _ = strconv.ParseUint(reply.text, 10, 64) // a number or a text
		k.Done = k.Token > 0
		return k.Done
	case reply.kind != respInteger:
		return false
	}
	k.Done = reply.integer == 1
	return reply.integer >= -1 && reply.integer <= 1
}
