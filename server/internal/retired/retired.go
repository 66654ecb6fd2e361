package retired

import (
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
)

// kinds are the errors that retire a node, each with the key of its message among the node's values.
var kinds = []struct {
	err error
	key string
}{
	{status.ErrDiverged, "quorumlock.diverged"},
	{status.ErrRolledBack, "quorumlock.rolled-back"},
	{status.ErrForked, "quorumlock.forked"},
}

// Check returns the error with which the node was retired, or nil if it was not.
func Check(values raft.StableStore) error {
	for _, k := range kinds {
		message, err := storage.Get(values, []byte(k.key))
		if err != nil {
			return err
		}
		if len(message) > 0 {
			return fmt.Errorf("%w: %s", k.err, message)
		}
	}
	return nil
}

// Retire stores the message. kind is one of status.ErrDiverged, status.ErrRolledBack and status.ErrForked.
func Retire(values raft.StableStore, kind error, message string) error {
	for _, k := range kinds {
		if k.err == kind {
			return values.Set([]byte(k.key), []byte(message))
		}
	}
	return fmt.Errorf("%w retires no node", kind)
}
