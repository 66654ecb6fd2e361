package admin_test

import (
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/client/admin"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestContended checks what is sent for the contended locks, and that the answer is converted.
func TestContended(t *testing.T) {
	c := connected(t, func(req *wire.Request) *wire.Response {
		want := &wire.ListContendedRequest{Prefix: "a/", Order: wire.ListContendedRequest_OLDEST_WAIT, Limit: 5, Stale: true}
		if !proto.Equal(req.GetListContended(), want) {
			t.Errorf("sent %v", req)
		}
		return &wire.Response{Body: &wire.Response_ListContended{ListContended: &wire.ListContendedResponse{
			Contended: 7, Revision: 9, Locks: []*wire.ContendedLock{
				{Name: "a/1", QueueLength: 3, HolderCount: 1, Holder: &wire.HolderInfo{HoldId: 4}, Oldest: &wire.WaiterInfo{WaitId: 5}},
				{Name: "a/2", QueueLength: 1, Oldest: &wire.WaiterInfo{WaitId: 6}},
			},
		}}}
	})
	got, err := c.Contended(t.Context(), "a/", admin.ByOldestWait, 5, admin.Stale())
	if err != nil || got.Total != 7 || got.Revision != 9 || len(got.Locks) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if one := got.Locks[0]; one.Name != "a/1" || one.QueueLength != 3 || one.HolderCount != 1 || one.Holder.HoldID != 4 || one.Oldest.WaitID != 5 {
		t.Errorf("%+v", one)
	}
	if got.Locks[1].Holder != nil {
		t.Errorf("%+v", got.Locks[1])
	}
}

// TestSession checks what is sent for a session, that the answer is converted, and the error for an unknown one.
func TestSession(t *testing.T) {
	c := connected(t, func(req *wire.Request) *wire.Response {
		if id := req.GetGetSession().GetSessionId(); id != 7 {
			return &wire.Response{Result: &wire.Result{Status: wire.Status_NOT_FOUND, Message: "no such session"}}
		}
		return &wire.Response{Body: &wire.Response_GetSession{GetSession: &wire.GetSessionResponse{
			Session: &wire.SessionInfo{SessionId: 7, Holds: 1, Waits: 1}, Revision: 9,
			Holds: []*wire.SessionHold{{Name: "a", Hold: &wire.HolderInfo{HoldId: 4}}},
			Waits: []*wire.SessionWait{{Name: "b", Wait: &wire.WaiterInfo{WaitId: 5, Position: 2}}},
		}}}
	})
	got, err := c.Session(t.Context(), 7)
	if err != nil || got.Session.SessionID != 7 || got.Revision != 9 || got.Holds[0].Name != "a" || got.Holds[0].Hold.HoldID != 4 ||
		got.Waits[0].Name != "b" || got.Waits[0].Wait.Position != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := c.Session(t.Context(), 8); !errors.Is(err, client.ErrNotFound) || got.Holds != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestElections checks what is sent for all pages of the elections, one of which is empty.
func TestElections(t *testing.T) {
	pages := map[string]*wire.ListLocksResponse{
		"":   {NextPageToken: "t1"},
		"t1": {NextPageToken: "t2", Locks: []*wire.LockInfo{{Name: "a/1"}}},
		"t2": {Locks: []*wire.LockInfo{{Name: "a/2"}}},
	}
	c := connected(t, func(req *wire.Request) *wire.Response {
		token := req.GetListLocks().GetPageToken()
		if want := (&wire.ListLocksRequest{Prefix: "a/", Elections: true, PageToken: token, Stale: true}); !proto.Equal(req.GetListLocks(), want) {
			t.Errorf("sent %v, want %v", req, want)
		}
		return &wire.Response{Body: &wire.Response_ListLocks{ListLocks: pages[token]}}
	})
	var names []string
	for lock, err := range c.Elections(t.Context(), "a/", admin.Stale()) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, lock.Name)
	}
	if !slices.Equal(names, []string{"a/1", "a/2"}) {
		t.Errorf("%q", names)
	}
}
