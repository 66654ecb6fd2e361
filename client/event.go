package client

import (
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// EventType is what an event reports.
type EventType int32

// The types of events.
const (
	SessionOpened   EventType = 1
	SessionAttached EventType = 2
	SessionClosed   EventType = 3
	SessionExpired  EventType = 4
	// Queued: a request entered a queue.
	Queued EventType = 5
	// Granted: a hold was granted, immediately or from a queue.
	Granted EventType = 6
	// Released: a holder released its hold.
	Released EventType = 7
	// Expired: a hold ended because its session expired, with StatusSessionLost, or because its max_hold
	// passed, with StatusTimeout.
	Expired EventType = 8
	// Cancelled: a wait ended without a grant. Event.Status has the reason: StatusCancelled, StatusTimeout,
	// StatusSessionLost, StatusPermissionDenied if the right to the lock was withdrawn or, for an upgrade whose
	// hold ended, StatusNotHeld.
	Cancelled EventType = 9
	// Revoked: an operator asked for a hold back.
	Revoked EventType = 10
	// Forced: an operator ended a hold, or the grace of a revocation passed.
	Forced EventType = 11
	// Delayed: the lock-delay of an ended hold began.
	Delayed EventType = 12
	// DelayEnded: a lock-delay ended or was skipped.
	DelayEnded EventType = 13
	// Downgraded: an exclusive hold became shared.
	Downgraded EventType = 14
	// Extended: the bound of a hold, its max_hold, was restarted.
	Extended EventType = 15
	// Wanted: a request began to wait for a hold that was acquired with [OnWanted].
	Wanted EventType = 16
	// Resized: the limit of a semaphore changed.
	Resized EventType = 17
	// SessionExtended: the TTL of a lease was restarted.
	SessionExtended EventType = 18
	// ValueSet: the value of a hold changed.
	ValueSet EventType = 19
)

// String returns the name of the type as in the protocol, such as GRANTED.
func (t EventType) String() string { return wire.Event_Type(t).String() }

// Event is one change of a lock or a session. Fields that do not apply to its type are zero.
type Event struct {
	Type     EventType
	Revision uint64
	// Lock is the name of the lock, or the first of several. Locks are all names if there are several.
	Lock  string
	Locks []string
	// SessionID and Owner identify the owner; Owner is 0 for the session itself.
	SessionID uint64
	Owner     uint64
	// HoldID is the id of the wait or hold, and Token its fencing token.
	HoldID  uint64
	Token   uint64
	Mode    Mode
	Permits uint64
	// Tokens is the number of tokens of a cached hold, from Token on.
	Tokens uint32
	// Waited means that the granted request had waited, and Upgrade that it is an upgrade of the hold.
	Waited  bool
	Upgrade bool
	// Status is why a wait or a hold ended.
	Status Status
	// TTL is that of the session.
	TTL time.Duration
	// Wait is how long a queued request waits; 0 means without a bound.
	Wait time.Duration
	// MaxHold is the bound of the hold, and the grace of a revocation.
	MaxHold   time.Duration
	LockDelay time.Duration
	// Limit is the new limit of a semaphore.
	Limit uint64
	// Reason is the operator's reason.
	Reason string
	// Leased means that the session is that of a lease.
	Leased bool
	// ByValue means that the hold came through the Redis port: its owner proves itself by a value.
	ByValue bool
	// Partial means that a lock-delay was ended for Lock only and continues for the hold's other locks.
	Partial bool
	// Restored means that the restore of a backup caused the event.
	Restored bool
	// Identity is the verified identity that opened the session of an event about a session.
	Identity string
}

// eventsOf converts events from wire format.
func eventsOf(from []*wire.Event) []Event {
	if len(from) == 0 {
		return nil
	}
	events := make([]Event, len(from))
	for i, e := range from {
		events[i] = Event{
			Type: EventType(e.GetType()), Revision: e.GetRevision(), Lock: e.GetLock(), Locks: e.GetLocks(),
			SessionID: e.GetSessionId(), Owner: e.GetOwner(), HoldID: e.GetHoldId(), Token: e.GetToken(),
			Mode: Mode(e.GetMode()), Permits: e.GetPermits(), Waited: e.GetWaited(), Upgrade: e.GetUpgrade(),
			Status: Status(e.GetStatus()), TTL: duration(e.GetTtlMs()), Wait: duration(e.GetWaitMs()),
			MaxHold: duration(e.GetMaxHoldMs()), LockDelay: duration(e.GetLockDelayMs()), Limit: e.GetLimit(),
			Reason: e.GetReason(), Leased: e.GetLeased(), ByValue: e.GetByValue(), Partial: e.GetPartial(), Restored: e.GetRestored(),
			Identity: e.GetIdentity(), Tokens: e.GetTokens(),
		}
	}
	return events
}

// duration converts milliseconds.
func duration(ms uint32) time.Duration { return time.Duration(ms) * time.Millisecond }
