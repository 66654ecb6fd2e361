package storage

import (
	"errors"

	"github.com/quorumlock/quorumlock/server/storage/segment"
	"github.com/quorumlock/quorumlock/server/storage/stable"
)

var (
	// ErrDamaged is returned, or passed to Options.Failed, when part of the data directory is missing or is
	// not what was written.
	ErrDamaged = segment.ErrDamaged
	// ErrInUse is returned when another process has the data directory open.
	ErrInUse = stable.ErrInUse
	// ErrStore is passed to Options.Failed when a write to the disk failed.
	ErrStore = errors.New("a write to the data directory failed")
	// ErrDiskHangs is passed to Options.Failed when a write to the disk has not returned within
	// Options.DiskTimeout.
	ErrDiskHangs = errors.New("the disk hangs")
	// ErrNotPrivate is returned when other users have access to the data directory and this process may not
	// change that. The message says what to do.
	ErrNotPrivate = errors.New("other users have access to the data directory")
	// ErrOtherNode is returned when the data directory belongs to another node id.
	ErrOtherNode = errors.New("the data directory belongs to another node")
	// ErrIdentityFile is returned when the identity file is not what the node wrote, and everything else in
	// the data directory is intact. The message contains the command that repairs it.
	ErrIdentityFile = errors.New("the identity file is damaged")
)
