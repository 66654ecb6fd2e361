package wire

// The digest of a request identifies its content in 64 bits: FNV-1a over a canonical encoding. The
// encoding is frozen, because digests are stored with outcomes and in snapshots, and are computed by
// other implementations. docs/PROTOCOL.md specifies it, and testdata/digests.json pins it. Waits, TTLs,
// client info and acknowledgements are not part of it: a retry may change them.

// The operation comes first, as its number in the log's Command.
const (
	digestOpenLease = 37
	digestAcquire   = 48
	digestRelease   = 49
	digestCancel    = 50
	digestSetValue  = 52
	digestUpgrade   = 53
	digestDowngrade = 54
	digestExtend    = 55

	digestChangeKeys    = 40
	digestAcquireCached = 58
)

// Digest returns the digest of the command's request, or 0 for commands whose outcomes are not remembered.
func (m *Command) Digest() uint64 {
	switch op := m.GetOp().(type) {
	case *Command_Acquire:
		return op.Acquire.digest(digestAcquire, op.Acquire.GetOwner())
	case *Command_AcquireCached:
		return op.AcquireCached.digest()
	case *Command_Release:
		return digestHold(digestRelease, op.Release.GetHoldId(), op.Release.GetToken()).sum()
	case *Command_Cancel:
		return digestOf(digestCancel).number(op.Cancel.GetAcquireSeq()).sum()
	case *Command_SetValue:
		return op.SetValue.digest()
	case *Command_Upgrade:
		return op.Upgrade.digest()
	case *Command_Downgrade:
		return digestHold(digestDowngrade, op.Downgrade.GetHoldId(), op.Downgrade.GetToken()).sum()
	case *Command_Extend:
		return op.Extend.digest()
	case *Command_OpenLease:
		return op.OpenLease.GetAcquire().digest(digestOpenLease, 0)
	}
	return 0
}

// Digest returns the digest of the request, which is that of the command it becomes, or 0 for requests
// whose outcomes are not remembered.
func (m *Request) Digest() uint64 {
	switch body := m.GetBody().(type) {
	case *Request_Acquire:
		return body.Acquire.digest(digestAcquire, body.Acquire.GetOwner())
	case *Request_AcquireCached:
		return body.AcquireCached.digest()
	case *Request_Release:
		return digestHold(digestRelease, body.Release.GetHoldId(), body.Release.GetToken()).sum()
	case *Request_Cancel:
		return digestOf(digestCancel).number(body.Cancel.GetAcquireSeq()).sum()
	case *Request_SetValue:
		return body.SetValue.digest()
	case *Request_Upgrade:
		return body.Upgrade.digest()
	case *Request_Downgrade:
		return digestHold(digestDowngrade, body.Downgrade.GetHoldId(), body.Downgrade.GetToken()).sum()
	case *Request_Extend:
		return body.Extend.digest()
	case *Request_AcquireLease:
		return body.AcquireLease.GetAcquire().digest(digestOpenLease, 0)
	}
	return 0
}

// digest returns the digest of an acquire or of a lease's acquire, whose owner is always its session.
func (m *Acquire) digest(operation, owner uint64) uint64 {
	return m.addTo(digestOf(operation).number(owner)).sum()
}

func (m *AcquireCached) digest() uint64 {
	d := digestOf(digestAcquireCached).number(m.GetAcquire().GetOwner())
	return m.GetAcquire().addTo(d).number(uint64(m.GetTokens())).number(uint64(m.GetIdleMs())).sum()
}

// addTo adds everything of an acquire but its owner.
func (m *Acquire) addTo(d digest) digest {
	order := m.GetOrder()
	if order == Order_ORDER_UNSPECIFIED {
		order = Order_FIFO
	}
	d = d.number(uint64(uint32(order))).
		flag(m.GetReentrant()).flag(m.GetNotify()).flag(m.GetAllowDeadlock()).
		number(uint64(m.GetMaxHoldMs())).number(uint64(m.GetLockDelayMs()))
	d = digestText(d, m.GetValue()).number(uint64(len(m.GetLocks())))
	for _, l := range m.GetLocks() {
		d = l.digest(d)
	}
	return d
}

// digest adds a lock. Omitted fields count as their defaults.
func (m *LockRequest) digest(d digest) digest {
	mode, permits := m.GetMode(), m.GetPermits()
	switch {
	case mode != Mode_MODE_UNSPECIFIED:
	case m.GetLimit() > 0:
		mode = Mode_PERMITS
	default:
		mode = Mode_EXCLUSIVE
	}
	if permits == 0 && m.GetLimit() > 0 {
		permits = 1
	}
	return digestText(d, m.GetName()).number(uint64(uint32(mode))).number(permits).number(m.GetLimit())
}

func (m *SetValue) digest() uint64 {
	return digestText(digestHold(digestSetValue, m.GetHoldId(), m.GetToken()), m.GetValue()).sum()
}

func (m *Upgrade) digest() uint64 {
	return digestHold(digestUpgrade, m.GetHoldId(), m.GetToken()).flag(m.GetAllowDeadlock()).sum()
}

func (m *Extend) digest() uint64 {
	return digestHold(digestExtend, m.GetHoldId(), m.GetToken()).number(uint64(m.GetMaxHoldMs())).sum()
}

// Digest returns the digest of a request of a Redis port for a caller. Only nodes repeat such requests, without a change
// but in what they acknowledge.
func (m *ChangeKeys) Digest(identity string) uint64 {
	d := digestText(digestOf(digestChangeKeys), identity).number(uint64(uint32(m.GetAction())))
	d = digestText(d, m.GetValue()).number(uint64(m.GetCompareBytes())).number(uint64(m.GetTtlMs())).flag(m.GetForce())
	d = d.flag(m.GetVersion() != nil).number(m.GetVersion().GetHoldId()).number(m.GetVersion().GetGeneration())
	for _, name := range m.GetNames() {
		d = digestText(d, name)
	}
	return d.sum()
}

// digest is a 64-bit FNV-1a hash of what was added so far.
type digest uint64

const (
	fnvOffset digest = 14695981039346656037
	fnvPrime  digest = 1099511628211
)

func digestOf(operation uint64) digest { return fnvOffset.number(operation) }

// digestHold starts the digest of a request about a hold.
func digestHold(operation, hold, token uint64) digest {
	return digestOf(operation).number(hold).number(token)
}

func (d digest) sum() uint64 { return uint64(d) }

func (d digest) byte(b byte) digest { return (d ^ digest(b)) * fnvPrime }

// number adds a varint of minimal length.
func (d digest) number(v uint64) digest {
	for ; v >= 0x80; v >>= 7 {
		d = d.byte(byte(v) | 0x80)
	}
	return d.byte(byte(v))
}

// flag adds 1 or 0.
func (d digest) flag(v bool) digest {
	if v {
		return d.byte(1)
	}
	return d.byte(0)
}

// digestText adds a text or bytes, preceded by the length.
func digestText[T string | []byte](d digest, v T) digest {
	d = d.number(uint64(len(v)))
	for i := range len(v) {
		d = d.byte(v[i])
	}
	return d
}
