package model

import (
	"encoding/binary"
	"hash/fnv"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// digest returns the digest of a request. It follows PROTOCOL.md and shares nothing with the service's
// implementation: the encoding is written out, and hashed by the standard library.
func digest(cmd *wire.Command) uint64 {
	var b []byte
	switch op := cmd.Op.(type) {
	case *wire.Command_Acquire:
		b = encoded(b, 48, op.Acquire, op.Acquire.GetOwner())
	case *wire.Command_AcquireCached:
		b = encoded(b, 58, op.AcquireCached.GetAcquire(), op.AcquireCached.GetAcquire().GetOwner())
		b = numbers(b, uint64(op.AcquireCached.GetTokens()), uint64(op.AcquireCached.GetIdleMs()))
	case *wire.Command_OpenLease:
		b = encoded(b, 37, op.OpenLease.GetAcquire(), 0)
	case *wire.Command_Release:
		b = numbers(b, 49, op.Release.GetHoldId(), op.Release.GetToken())
	case *wire.Command_Cancel:
		b = numbers(b, 50, op.Cancel.GetAcquireSeq())
	case *wire.Command_SetValue:
		b = numbers(b, 52, op.SetValue.GetHoldId(), op.SetValue.GetToken(), uint64(len(op.SetValue.GetValue())))
		b = append(b, op.SetValue.GetValue()...)
	case *wire.Command_Upgrade:
		b = numbers(b, 53, op.Upgrade.GetHoldId(), op.Upgrade.GetToken(), bit(op.Upgrade.GetAllowDeadlock()))
	case *wire.Command_Downgrade:
		b = numbers(b, 54, op.Downgrade.GetHoldId(), op.Downgrade.GetToken())
	case *wire.Command_Extend:
		b = numbers(b, 55, op.Extend.GetHoldId(), op.Extend.GetToken(), uint64(op.Extend.GetMaxHoldMs()))
	}
	return hashed(b)
}

// digestOfKeys returns the digest of a request of a Redis port for the caller.
func (d *Model) digestOfKeys(op *wire.ChangeKeys) uint64 {
	b := text(numbers(nil, 40), d.who())
	b = text(numbers(b, uint64(op.Action)), string(op.Value))
	b = numbers(b, uint64(op.CompareBytes), uint64(op.TtlMs), bit(op.Force), bit(op.Version != nil), op.Version.GetHoldId(), op.Version.GetGeneration())
	for _, name := range op.Names {
		b = text(b, name)
	}
	return hashed(b)
}

func hashed(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

func text(b []byte, s string) []byte { return append(numbers(b, uint64(len(s))), s...) }

func encoded(b []byte, operation uint64, op *wire.Acquire, owner uint64) []byte {
	order := op.GetOrder()
	if order == wire.Order_ORDER_UNSPECIFIED {
		order = wire.Order_FIFO
	}
	b = numbers(b, operation, owner, uint64(uint32(order)), bit(op.GetReentrant()), bit(op.GetNotify()), bit(op.GetAllowDeadlock()),
		uint64(op.GetMaxHoldMs()), uint64(op.GetLockDelayMs()), uint64(len(op.GetValue())))
	b = append(b, op.GetValue()...)
	b = numbers(b, uint64(len(op.GetLocks())))
	for _, l := range op.GetLocks() {
		b = append(numbers(b, uint64(len(l.GetName()))), l.GetName()...)
		mode, permits := l.GetMode(), l.GetPermits()
		if mode == wire.Mode_MODE_UNSPECIFIED && l.GetLimit() > 0 {
			mode = wire.Mode_PERMITS
		} else if mode == wire.Mode_MODE_UNSPECIFIED {
			mode = wire.Mode_EXCLUSIVE
		}
		if l.GetLimit() > 0 {
			permits = max(permits, 1)
		}
		b = numbers(b, uint64(uint32(mode)), permits, l.GetLimit())
	}
	return b
}

func numbers(b []byte, all ...uint64) []byte {
	for _, v := range all {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func bit(v bool) uint64 {
	if v {
		return 1
	}
	return 0
}

// echo adds to the answer to an acquire or an upgrade the digest and the lock of its request.
func (d *Model) echo(cmd *wire.Command, r *wire.Result) *wire.Result {
	switch op := cmd.Op.(type) {
	case *wire.Command_Acquire:
		r.Digest, r.Name = digest(cmd), firstName(op.Acquire)
	case *wire.Command_AcquireCached:
		r.Digest, r.Name = digest(cmd), firstName(op.AcquireCached.GetAcquire())
	case *wire.Command_OpenLease:
		r.Digest, r.Name = digest(cmd), firstName(op.OpenLease.GetAcquire())
	case *wire.Command_Upgrade:
		r.Digest, r.Name = digest(cmd), d.nameOf(cmd.SessionId, op.Upgrade.GetHoldId())
	}
	return r
}

func firstName(op *wire.Acquire) string {
	for _, l := range op.GetLocks() {
		return l.GetName()
	}
	return ""
}

// nameOf returns the first lock of a session's claim, while the claim waits, holds or delays.
func (d *Model) nameOf(session, id uint64) string {
	for _, c := range d.bySession[session] {
		if c.ID == id {
			return c.Locks[0].Name
		}
	}
	return ""
}
