package admin

import (
	"time"

	"github.com/quorumlock/quorumlock/client"
)

// Order is the order in which waiters are granted a lock.
type Order int32

// The orders.
const (
	FIFO   Order = 1
	Unfair Order = 2
)

// Lock is a lock with its holders and its queue in order.
type Lock struct {
	Name string
	// Holders may contain fewer than HolderCount.
	Holders     []Holder
	HolderCount uint64
	// Queue may contain fewer than QueueLength.
	Queue       []Waiter
	QueueLength uint64
	Order       Order
	// Limit is a semaphore's number of permits; 0 for a lock with modes. PermitsUsed are held or under a
	// lock-delay.
	Limit       uint64
	PermitsUsed uint64
	Delays      []Delay
	// Lineage and Revision are the position of the answer of [Client.Lock], from which a watch can continue.
	// They are zero in lists.
	Lineage  string
	Revision uint64
}

// Position returns the position in the event log at which a watch continues.
func (l Lock) Position() client.Position {
	return client.Position{Lineage: l.Lineage, Revision: l.Revision}
}

// Holder is one hold on a lock.
type Holder struct {
	HoldID    uint64
	Token     uint64
	SessionID uint64
	// Identity is the verified identity that opened the session.
	Identity string
	// Owner is the owner key within the session; 0 means the session itself.
	Owner   uint64
	Mode    client.Mode
	Permits uint64
	Value   []byte
	Client  client.ClientInfo
	// Granted and HeldFor are according to the clock of the answering node.
	Granted  time.Time
	HeldFor  time.Duration
	Revision uint64
	// HeartbeatAge is the time since the session's last heartbeat. Only the leader knows it; nil elsewhere.
	HeartbeatAge *time.Duration
	// Leased is set for a lease, whose client sends no heartbeats but extends it. RemainingLease is the time until
	// it ends unless it is extended; 0 if not known.
	Leased         bool
	RemainingLease time.Duration
	// ByValue is set for a lease that came through the Redis port: its owner proves itself by a value.
	ByValue bool
	// Count is how many acquires of a reentrant owner the hold represents.
	Count uint32
	// MaxHold is the maximum duration of the hold; 0 means unlimited. RemainingHold is the time until the
	// earlier of that and the grace of a revocation; nil if there is neither, or not known.
	MaxHold       time.Duration
	RemainingHold *time.Duration
	LockDelay     time.Duration
	// Revocation is set if an operator has asked for the hold back.
	Revocation *client.Revocation
	// Locks are the names of all locks of the hold if it has several.
	Locks []string
	// Tokens is the number of tokens of a cached hold, from Token on; 0 if it is not cached. MaxIdle is how long its
	// session keeps it unused, Idle how long it has been unused, as the session's last heartbeat reported; nil if it was
	// in use then, or not known. Recalled means that others wait for it.
	Tokens   uint32
	MaxIdle  time.Duration
	Idle     *time.Duration
	Recalled bool
}

// Waiter is one place in the queue of a lock.
type Waiter struct {
	// WaitID becomes the id of the hold.
	WaitID uint64
	// Position is 1 at the head of the queue.
	Position  uint64
	SessionID uint64
	// Identity is the verified identity that opened the session.
	Identity string
	Owner    uint64
	Mode     client.Mode
	Permits  uint64
	Client   client.ClientInfo
	// Queued and Waiting are according to the clock of the answering node.
	Queued  time.Time
	Waiting time.Duration
	// Wait is the limit of the wait, unless WaitForever is set.
	Wait         time.Duration
	WaitForever  bool
	HeartbeatAge *time.Duration
	// Locks are the names of all locks of the request if it has several.
	Locks []string
	// Upgrade means that a shared holder waits to become exclusive; WaitID is then the id of its hold.
	Upgrade bool
}

// Delay is a hold that has expired or was forced to end, and whose mode or permits remain closed for its
// lock-delay.
type Delay struct {
	HoldID    uint64
	Token     uint64
	SessionID uint64
	Mode      client.Mode
	Permits   uint64
	LockDelay time.Duration
	Since     time.Time
	// Remaining is known only to the leader; nil elsewhere.
	Remaining *time.Duration
}

// Session is a live session.
type Session struct {
	SessionID uint64
	// Identity is the verified identity that opened the session, which alone may use it.
	Identity string
	TTL      time.Duration
	Client   client.ClientInfo
	Opened   time.Time
	Holds    uint64
	Waits    uint64
	// HeartbeatAge is known only to the leader; nil elsewhere.
	HeartbeatAge *time.Duration
	// Leased means that the session is that of a lease, which has no heartbeats.
	Leased bool
	// ByValue means that it is the session of a hold that came through the Redis port.
	ByValue bool
}

// Deadlock is a cycle of owners that wait for each other.
type Deadlock struct {
	Cycle []client.DeadlockStep
}
