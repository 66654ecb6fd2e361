package fsm

import "github.com/quorumlock/quorumlock/transport/wire"

// keyUnits returns an upper bound of the units that a request for keys can add to the state.
func keyUnits(identity string, op *wire.ChangeKeys) (n uint64) {
	for _, name := range op.GetNames() {
		n += unitsOfKey(identity, op, name)
	}
	return n
}

// mostKeyUnits returns an upper bound of the units that a request for keys can add to one session.
func mostKeyUnits(identity string, op *wire.ChangeKeys) (n uint64) {
	for _, name := range op.GetNames() {
		n = max(n, unitsOfKey(identity, op, name))
	}
	return n
}

func unitsOfKey(identity string, op *wire.ChangeKeys, name string) uint64 {
	value := textUnits(len(op.GetValue()))
	switch {
	case acquiresKeys(op):
		return sessionUnits + clientUnits(op.GetClient()) + textUnits(len(identity)) + value +
			claimUnits + nameUnits + textUnits(len(name)) + 2*outcomeUnits
	case op.GetAction() == wire.ChangeKeys_EXTEND && op.GetCompareBytes() > 0:
		return value
	}
	return 0
}

// answeredKeys reports whether a request is not executed again.
func (m *Machine) answeredKeys(op *wire.ChangeKeys) bool {
	_, known := m.keyResultOf(op)
	from, _ := m.keySenders.get(op.GetNodeId())
	return known || from.boot == op.GetBoot() && op.GetSeq() < from.ackedBelow
}

// onlyExtends reports whether a request that may acquire a key extends it instead, without another value.
func (m *Machine) onlyExtends(op *wire.ChangeKeys) bool {
	if op.GetAction() != wire.ChangeKeys_ACQUIRE_OR_EXTEND || op.GetCompareBytes() > 0 || len(op.GetNames()) == 0 {
		return false
	}
	_, exists := m.locks.get(op.Names[0])
	return exists
}
