//go:build unix

package main

import (
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// family returns locks of every kind, with all properties set.
func family() map[string]*wire.GetLockResponse {
	return map[string]*wire.GetLockResponse{
		"pool": {Name: "pool", Limit: 10, PermitsUsed: 7, HolderCount: 5, QueueLength: 2,
			Holders: []*wire.HolderInfo{
				{HoldId: 40, Token: 21, SessionId: 9, Mode: wire.Mode_PERMITS, Permits: 3, HeldForMs: 4_000, Client: web(), HeartbeatAgeMs: proto.Uint64(100),
					MaxHoldMs: 60_000, RemainingHoldMs: proto.Uint64(55_900), LockDelayMs: 5_000},
				{HoldId: 41, Token: 22, SessionId: 12, Mode: wire.Mode_PERMITS, Permits: 1, HeldForMs: 2_000, MaxHoldMs: 90_000,
					Locks: []string{"pool", "orders/42"}},
			},
			Queue: []*wire.WaiterInfo{
				{WaitId: 50, Position: 1, SessionId: 10, Client: batch(), Mode: wire.Mode_PERMITS, Permits: 4, WaitForever: true, WaitingMs: 1_000,
					Locks: []string{"pool", "ledger"}},
				{WaitId: 51, Position: 2, SessionId: 11, Mode: wire.Mode_PERMITS, Permits: 1, WaitMs: 2_000, WaitingMs: 500},
			}},
		"shared": {Name: "shared", HolderCount: 2, QueueLength: 3,
			Holders: []*wire.HolderInfo{
				{HoldId: 60, Token: 31, SessionId: 9, Mode: wire.Mode_SHARED, Count: 2, HeldForMs: 1_000, Client: web(), HeartbeatAgeMs: proto.Uint64(5),
					LockDelayMs: 10_000, Locks: []string{"shared", "ledger"},
					Revocation: &wire.Revocation{Reason: "deploy\x1b[2J", GraceMs: 30_000}, RemainingHoldMs: proto.Uint64(29_000)},
				{HoldId: 61, Token: 32, SessionId: 12, Mode: wire.Mode_SHARED, Count: 1, HeldForMs: 500, Revocation: &wire.Revocation{Reason: "please"}},
			},
			Queue: []*wire.WaiterInfo{
				{WaitId: 61, Position: 1, SessionId: 12, Mode: wire.Mode_EXCLUSIVE, Upgrade: true, WaitForever: true, WaitingMs: 400},
				{WaitId: 62, Position: 2, SessionId: 10, Mode: wire.Mode_EXCLUSIVE, WaitForever: true, WaitingMs: 300, Client: batch()},
				{WaitId: 63, Position: 3, SessionId: 11, Mode: wire.Mode_SHARED, WaitForever: true, WaitingMs: 200},
			}},
		"closed": {Name: "closed", Order: wire.Order_UNFAIR, QueueLength: 2,
			Delays: []*wire.DelayInfo{{HoldId: 70, Token: 41, SessionId: 13, Mode: wire.Mode_EXCLUSIVE, LockDelayMs: 10_000, RemainingMs: proto.Uint64(4_200)}},
			Queue: []*wire.WaiterInfo{
				{WaitId: 71, Position: 1, SessionId: 10, Client: batch(), Mode: wire.Mode_EXCLUSIVE, WaitForever: true, WaitingMs: 5_000},
				{WaitId: 72, Position: 2, SessionId: 11, Mode: wire.Mode_EXCLUSIVE, WaitForever: true, WaitingMs: 4_000}}},
		"cached": {Name: "cached", HolderCount: 1, Holders: []*wire.HolderInfo{
			{HoldId: 80, Token: 17, Tokens: 64, SessionId: 9, Mode: wire.Mode_EXCLUSIVE, HeldForMs: 90_000, Client: web(), HeartbeatAgeMs: proto.Uint64(100),
				MaxIdleMs: 30_000, IdleMs: proto.Uint64(3_000)}}},
		"recalled": {Name: "recalled", HolderCount: 1, QueueLength: 1, Holders: []*wire.HolderInfo{
			{HoldId: 81, Token: 81, Tokens: 16_384, SessionId: 9, Mode: wire.Mode_EXCLUSIVE, HeldForMs: 90_000, Client: web(), HeartbeatAgeMs: proto.Uint64(100),
				MaxIdleMs: 30_000, Recalled: true, IdleMs: proto.Uint64(3_000)}},
			Queue: []*wire.WaiterInfo{{WaitId: 82, Position: 1, SessionId: 10, Client: batch(), Mode: wire.Mode_EXCLUSIVE, WaitForever: true, WaitingMs: 40}}},
		"ledger": {Name: "ledger", Holders: []*wire.HolderInfo{{SessionId: 14, Client: web()}}, QueueLength: 1, Queue: []*wire.WaiterInfo{
			{WaitId: 50, Position: 1, SessionId: 10, Client: batch()}}},
	}
}

// auditPage returns the audit log in two pages.
func auditPage(req *wire.ListAuditRequest) *wire.ListAuditResponse {
	if req.GetPageToken() == "" {
		return &wire.ListAuditResponse{NextPageToken: "2", Records: []*wire.AuditRecord{
			{Id: 5, Action: wire.AuditRecord_REVOKE_TOKEN, Operator: "root", Reason: "leaked", WallUnixMs: 1_700_000_300_000, TokenId: "3f9c0a71b2d4", Identity: "ci",
				Caller: &wire.Caller{Identity: "alice", Credential: "certificate 5f01", Address: "10.0.0.9:40112"}},
			{Id: 4, Action: wire.AuditRecord_ADD_MEMBER, Operator: "ops@bastion", Reason: "grow", WallUnixMs: 1_700_000_200_000, Member: "n4", Address: "10.0.0.4:7401",
				Ticket: "OPS-7", Outcome: wire.Status_UNAVAILABLE, Message: "no \x1b[1mquorum", BegunRevision: 8},
			{Id: 3, Action: wire.AuditRecord_RESTORE, Operator: "ops@bastion", Reason: "the old cluster is lost", WallUnixMs: 1_700_000_100_000,
				Backup: &wire.Backup{ClusterId: "lost", Revision: 99, Token: 7, Sha256: make([]byte, 32)}},
			{Id: 2, Action: wire.AuditRecord_RESIZE, Imported: &wire.AuditImport{ClusterId: "lost", Id: 12, RestoreId: 3}, Operator: "ops@bastion", Reason: "more hosts", WallUnixMs: 1_700_000_050_000, Lock: "pool", Limit: 20}}}
	}
	return &wire.ListAuditResponse{Records: []*wire.AuditRecord{
		{Id: 1, Action: wire.AuditRecord_FORCE_RELEASE, Operator: "ops@bastion", Reason: "host \x1b[1mon fire", WallUnixMs: 1_700_000_000_000,
			Lock: "orders/42", HoldId: 211, Token: 1<<62 + 17, SessionId: 9, ClientName: "refund",
			Outcome: wire.Status_OK, Locks: []string{"orders/42", "orders/43\x1b[1m"}, FurtherLocks: 3}}}
}
