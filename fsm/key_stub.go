package fsm

import "github.com/quorumlock/quorumlock/transport/wire"

// Key is a lock as the Redis port sees it.
type Key struct {
	// Held is true for a hold that came through the Redis port. The other fields describe it, and for another
	// exclusive hold HoldID, Token, Session, Identity and Client.
	Held     bool
	Value    string
	Identity string
	Client   *wire.ClientInfo
	// Generation is that of the TTL's deadline.
	HoldID, Generation, Token, Session uint64
	// TTL is in milliseconds.
	TTL uint32
}

// Key returns a key. It exists if anybody holds or waits for the lock, or if a lock-delay keeps it closed.
func (m *Machine) Key(name string) (k Key, exists bool) {
	_, exists = m.locks.get(name)
	return Key{}, exists
}
