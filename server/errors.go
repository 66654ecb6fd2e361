package server

import (
	"errors"

	"github.com/quorumlock/quorumlock/server/replica"
)

var (
	// ErrConfig is returned when a Config cannot be run; the message lists everything
	// that is wrong with it and what to change, by the names of qlockd's flags.
	ErrConfig = errors.New("invalid configuration")
	// ErrListen is returned when a port cannot be bound; the message says which.
	ErrListen = errors.New("cannot listen")

	// ErrOtherNode is returned when the data directory belongs to another id.
	ErrOtherNode = replica.ErrOtherNode
	// ErrLogMoved is returned when the log is to be in bolt, and was moved to segments before.
	ErrLogMoved = replica.ErrLogMoved
	// ErrInUse is returned when another process has the data directory open.
	ErrInUse = replica.ErrInUse
	// ErrReplaced is returned when the cluster knows this node's id with another data
	// directory; the message holds the commands that replace it.
	ErrReplaced = replica.ErrReplaced
	// ErrDiverged is returned when the node has stopped because most of the voters were in
	// another state; the message holds the commands that replace it.
	ErrDiverged = replica.ErrDiverged
)
