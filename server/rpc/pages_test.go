package rpc

import (
	"math"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestPagesOutOfRangeAreRefused(t *testing.T) {
	c := connect(t, serve(t, nil))
	for _, req := range []*wire.Request{
		{Body: &wire.Request_ListLocks{ListLocks: &wire.ListLocksRequest{PageSize: 1_001}}},
		{Body: &wire.Request_ListLocks{ListLocks: &wire.ListLocksRequest{PageToken: "a/b", Stale: true}}},
		{Body: &wire.Request_ListSessions{ListSessions: &wire.ListSessionsRequest{PageSize: math.MaxUint32}}},
		{Body: &wire.Request_ListSessions{ListSessions: &wire.ListSessionsRequest{PageToken: "17"}}},
		{Body: &wire.Request_ListAudit{ListAudit: &wire.ListAuditRequest{PageSize: 1_001}}},
		{Body: &wire.Request_ListAudit{ListAudit: &wire.ListAuditRequest{PageToken: "17"}}},
		{Body: &wire.Request_GetLock{GetLock: &wire.GetLockRequest{Name: "a", QueueLimit: 10_001}}},
	} {
		c.expect(wire.Status_INVALID_ARGUMENT, req)
	}
}
