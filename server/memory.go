package server

// A node's memory is the sum of what it always takes, the replicated state, and buffers.
const (
	// leastMemory is the lower bound of Config.MemoryLimit, and leastBuffers that of
	// Config.MaxBufferBytes, in bytes.
	leastMemory  = 128 << 20
	leastBuffers = 8 << 20
	// fixedMemory is what a node takes beside state and buffers, in bytes: the program, raft's
	// cache, the history of events, snapshots on their way, half-made connections.
	fixedMemory = 64 << 20
)

func (c Config) checkMemory() []error {
	var f faultList
	f.require(c.MemoryLimit >= leastMemory, "--memory-limit %d: at least %d", c.MemoryLimit, leastMemory)
	f.require(c.MaxBufferBytes >= leastBuffers, "--max-buffer-bytes %d: at least %d", c.MaxBufferBytes, leastBuffers)
	f.require(c.MaxBufferBytes <= c.MemoryLimit/2-fixedMemory/2 || c.MemoryLimit < leastMemory,
		"--max-buffer-bytes %d leaves no room for the state: of --memory-limit %d, %d are for what a node always takes, and half of the rest for buffers at most",
		c.MaxBufferBytes, c.MemoryLimit, fixedMemory)
	room := max(c.MemoryLimit-fixedMemory-c.MaxBufferBytes, 0)
	f.require(len(f) > 0 || c.Settings.GetMaxStateBytes() <= uint64(room),
		"--max-state-bytes %d does not fit: of --memory-limit %d, %d are for what a node always takes and %d for --max-buffer-bytes: lower --max-state-bytes or raise --memory-limit",
		c.Settings.GetMaxStateBytes(), c.MemoryLimit, fixedMemory, c.MaxBufferBytes)
	return f
}
