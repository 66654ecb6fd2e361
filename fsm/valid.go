package fsm

import (
	"fmt"
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// maxLocks bounds the locks of one acquire, maxLimit the permits of a semaphore.
	maxLocks = 64
	maxLimit = 1 << 31
	// Bounds of the times in an acquire, in milliseconds.
	minMaxHoldMs   = 100
	maxMaxHoldMs   = 1 << 31
	maxLockDelayMs = 60_000
)

func invalid(format string, args ...any) *wire.Result {
	return answer(wire.Status_INVALID_ARGUMENT, fmt.Sprintf(format, args...))
}

// ValidNames refuses the locks of an acquire if there are none or too many, or if one has no valid name. Ports call it
// before they look up the rights on the locks.
func ValidNames(locks []*wire.LockRequest) *wire.Result {
	if refusal := validCount(locks); refusal != nil {
		return refusal
	}
	for _, request := range locks {
		if refusal := validName(request.GetName()); refusal != nil {
			return refusal
		}
	}
	return nil
}

func validCount(locks []*wire.LockRequest) *wire.Result {
	if n := len(locks); n == 0 || n > maxLocks {
		return invalid("an acquire takes 1 to %d locks, not %d", maxLocks, n)
	}
	return nil
}

func validAcquire(op *wire.Acquire) *wire.Result {
	if refusal := validCount(op.GetLocks()); refusal != nil {
		return refusal
	}
	for i, request := range op.Locks {
		if refusal := validRequest(request); refusal != nil {
			return refusal
		}
		same := func(other *wire.LockRequest) bool { return other.Name == request.Name }
		if slices.ContainsFunc(op.Locks[:i], same) {
			return invalid("the lock %q is named twice", request.Name)
		}
	}
	return validOptions(op)
}

// validRequest checks one lock of an acquire.
func validRequest(request *wire.LockRequest) *wire.Result {
	if refusal := validName(request.GetName()); refusal != nil {
		return refusal
	}
	if request.Limit > 0 {
		return validPermits(request)
	}
	switch request.Mode {
	case wire.Mode_MODE_UNSPECIFIED, wire.Mode_EXCLUSIVE, wire.Mode_SHARED:
	case wire.Mode_PERMITS:
		return invalid("permits of %q need the limit of the semaphore", request.Name)
	default:
		return invalid("mode %d is not known at this level", request.Mode)
	}
	if request.Permits > 0 {
		return invalid("permits of %q need the limit of the semaphore", request.Name)
	}
	return nil
}

func validPermits(request *wire.LockRequest) *wire.Result {
	switch {
	case request.Mode != wire.Mode_MODE_UNSPECIFIED && request.Mode != wire.Mode_PERMITS:
		return invalid("%q has a limit, which makes it a semaphore: leave the mode out", request.Name)
	case request.Limit > maxLimit:
		return invalid("the limit of %q is %d: at most %d is allowed", request.Name, request.Limit, uint32(maxLimit))
	case request.Permits > request.Limit:
		return invalid("%d permits of %q can never be had: its limit is %d", request.Permits, request.Name, request.Limit)
	}
	return nil
}

// validOptions checks what an acquire contains besides its locks.
func validOptions(op *wire.Acquire) *wire.Result {
	one := len(op.Locks) == 1
	switch op.Order {
	case wire.Order_ORDER_UNSPECIFIED, wire.Order_FIFO:
	case wire.Order_UNFAIR:
		if !one || wanted(op.Locks[0]).mode != wire.Mode_EXCLUSIVE {
			return invalid("the order UNFAIR takes one lock, exclusively")
		}
	default:
		return invalid("order %d is not known at this level", op.Order)
	}
	if op.Reentrant && (!one || op.Locks[0].Limit > 0) {
		return invalid("reentrant takes one lock that is no semaphore")
	}
	if op.LockDelayMs > maxLockDelayMs {
		return invalid("lock_delay_ms is %d: at most %d is allowed", op.LockDelayMs, maxLockDelayMs)
	}
	return validMaxHold(op.MaxHoldMs)
}

func validMaxHold(ms uint32) *wire.Result {
	if ms != 0 && (ms < minMaxHoldMs || ms > maxMaxHoldMs) {
		return invalid("max_hold_ms is %d: 0 or %d to %d is allowed", ms, minMaxHoldMs, uint32(maxMaxHoldMs))
	}
	return nil
}

func validValue(settings *wire.Settings, value []byte) *wire.Result {
	if limit := settings.GetMaxValueBytes(); len(value) > int(limit) {
		return answer(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("max_value_bytes: the value has %d bytes, at most %d are allowed", len(value), limit))
	}
	return nil
}
