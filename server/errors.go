package server

import (
	"errors"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
)

var (
	// ErrConfig is returned when a Config is invalid. The message lists every fault and its remedy, using the
	// names of qlockd's flags.
	ErrConfig = errors.New("invalid configuration")
	// ErrListen is returned when a port cannot be bound. The message names the port.
	ErrListen = errors.New("cannot listen")

	// ErrOtherNode is returned when the data directory belongs to a node with another ID.
	ErrOtherNode = storage.ErrOtherNode
	// ErrInUse is returned when another process has the data directory open.
	ErrInUse = storage.ErrInUse
	// ErrReplaced is returned when the cluster knows this node's ID with another data directory. The message
	// contains the commands that replace the node.
	ErrReplaced = status.ErrReplaced
	// ErrDiverged is returned when the node has stopped because most voters were in a different state. The
	// message contains the commands that replace the node.
	ErrDiverged = status.ErrDiverged
)
