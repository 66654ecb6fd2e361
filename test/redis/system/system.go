package system

// System is what Redis clients connect to.
type System interface {
	// Entries returns two addresses: each serves on its own.
	Entries() [2]Entry
	// Interrupt ends all connections of clients. The same addresses serve again when it returns.
	Interrupt()
	// Fail ends the process that decides about locks, and waits until the entries serve again.
	Fail()
}

// Entry is an address to which clients connect.
type Entry struct {
	Name, Addr string
}
