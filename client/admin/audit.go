package admin

import (
	"time"

	"github.com/quorumlock/quorumlock/client"
)

// Action is what an operator has done.
type Action int32

// The actions.
const (
	ForceRelease       Action = 1
	Revoke             Action = 2
	SkipDelay          Action = 3
	Resize             Action = 4
	ForceClose         Action = 5
	Restore            Action = 6
	AddMember          Action = 7
	RemoveMember       Action = 8
	TransferLeadership Action = 9
	SaveSnapshot       Action = 10
	AcknowledgeAlarms  Action = 11
	SetPolicy          Action = 12
	CreateToken        Action = 13
	RevokeToken        Action = 14
	DrainMember        Action = 15
	UndrainMember      Action = 16
	Recover            Action = 17
)

// AuditRecord is one action in the audit log.
type AuditRecord struct {
	// ID increases in the order of the log.
	ID     uint64
	Action Action
	// Caller is who has made the request, as verified.
	Caller Caller
	// Operator is the name that the request claims, which is not verified.
	Operator string
	Reason   string
	// Ticket is the one that the request claims.
	Ticket   string
	Revision uint64
	// Time is according to the leader's clock.
	Time time.Time `field:"wall_unix_ms"`
	// Lock, HoldID, Token, SessionID and ClientName are those affected.
	Lock       string
	HoldID     uint64
	Token      uint64
	SessionID  uint64
	ClientName string
	// Limit is the new limit of a semaphore.
	Limit uint64
	// Member and Address are the node that was added, removed or drained, or the next leader.
	Member  string
	Address string
	// TokenID and Identity are those of the token that was created or revoked.
	TokenID  string
	Identity string
	// Backup is the one that was restored, or the cluster that was recovered.
	Backup *Backup
	// Imported is set if a restore imported the record, which is then as reliable as the backup.
	Imported *Import
	// Outcome is the status of the act: 1, which is OK in the protocol, if it succeeded. Changes of members and leader
	// and backups have two records: one before they begin, without an outcome, and one with the outcome, which has the
	// revision of the first as BegunRevision.
	Outcome client.Status
	// Message says what went wrong.
	Message       string
	BegunRevision uint64
	// Locks are all locks of a hold that has several, as far as the record has room. FurtherLocks counts the others.
	Locks        []string
	FurtherLocks uint32
}

// Backup identifies a backup.
type Backup struct {
	ClusterID string
	Lineage   string
	Revision  uint64
	Token     uint64
	SHA256    []byte
}

// Import is the origin of an imported audit record.
type Import struct {
	ClusterID string
	ID        uint64
	RestoreID uint64
}
