package fsm

import "github.com/quorumlock/quorumlock/transport/wire"

// Level is the highest feature level that this program understands. docs/COMPATIBILITY.md lists the steps that raise
// it.
const Level = 1

// firstLevel is the feature level of a new cluster, whatever its nodes support.
const firstLevel = 1

// levelOf returns the feature level that a command belongs to. Commands of later levels get their case here.
func levelOf(cmd *wire.Command) uint32 {
	switch cmd.Op.(type) {
	default:
		return firstLevel
	}
}
