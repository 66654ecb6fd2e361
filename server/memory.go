package server

// A node's memory consists of a fixed part, the replicated state, and buffers.
const (
	// leastMemory is the lower bound of Config.MemoryLimit, and leastBuffers that of Config.MaxBufferBytes,
	// in bytes.
	leastMemory  = 128 << 20
	leastBuffers = 8 << 20
	// fixedMemory is what a node uses besides state and buffers, in bytes: the program, raft's cache, the
	// event log, snapshots being transferred, and connections in their handshake.
	fixedMemory = 64 << 20
)

// memoryRules clamps a number that violates its own limits when the limit of another number depends on it.
func (c Config) memoryRules() []rule {
	free := max(c.MemoryLimit, leastMemory) - fixedMemory
	buffers := min(max(c.MaxBufferBytes, leastBuffers), free/2)
	return []rule{
		atLeast("memory-limit", c.MemoryLimit, leastMemory),
		atLeast("max-buffer-bytes", c.MaxBufferBytes, leastBuffers),
		atMost("max-buffer-bytes", c.MaxBufferBytes, free/2).because("to leave room for the state: of --memory-limit %d, %d are for what a node always takes, and half of the rest for buffers at most",
			c.MemoryLimit, fixedMemory),
		atMost("max-state-bytes", c.Settings.GetMaxStateBytes(), uint64(free-buffers)).because("to fit: of --memory-limit %d, %d are for what a node always takes and %d for --max-buffer-bytes: lower --max-state-bytes or raise --memory-limit",
			c.MemoryLimit, fixedMemory, buffers),
	}
}
