package fsm

import "github.com/quorumlock/quorumlock/transport/wire"

// Level is the highest feature level that this program understands. docs/COMPATIBILITY.md lists the steps that raise
// it.
const Level = 2

// firstLevel is the feature level of a new cluster, whatever its nodes support.
const firstLevel = 1

// cachedLevel is the level of cached holds and of the settings about them.
const cachedLevel = 2

// LevelOf returns the feature level that a command belongs to. Commands of later levels get their case here.
func LevelOf(cmd *wire.Command) uint32 {
	switch op := cmd.Op.(type) {
	case *wire.Command_AcquireCached:
		return cachedLevel
	case *wire.Command_Bootstrap:
		return LevelOfSettings(op.Bootstrap.GetSettings())
	case *wire.Command_RestoreBackup:
		return LevelOfSettings(op.RestoreBackup.GetSettings())
	}
	return firstLevel
}

// LevelOfSettings returns the feature level that settings need.
func LevelOfSettings(s *wire.Settings) uint32 {
	if s.GetMaxCachedIdleMs() != 0 || s.GetNoCachedHolds() {
		return cachedLevel
	}
	return firstLevel
}
