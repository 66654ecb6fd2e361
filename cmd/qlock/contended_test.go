//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// answerContended lists three of twelve contended locks.
func answerContended(req *wire.ListContendedRequest) (*wire.ListContendedResponse, error) {
	if req.GetPrefix() != "" {
		return &wire.ListContendedResponse{Revision: 300}, nil
	}
	if req.GetOrder() != wire.ListContendedRequest_OLDEST_WAIT || req.GetLimit() != 3 {
		return nil, fmt.Errorf("asked for %v", req)
	}
	return &wire.ListContendedResponse{Revision: 300, Contended: 12, Locks: []*wire.ContendedLock{
		{Name: "orders/42", QueueLength: 12, HolderCount: 1, Holder: holder(), Oldest: lock().GetQueue()[0]},
		{Name: "pool", QueueLength: 1, HolderCount: 5, Holder: family()["pool"].GetHolders()[0], Oldest: lock().GetQueue()[1]},
		{Name: "closed", QueueLength: 2, Oldest: lock().GetQueue()[1]},
	}}, nil
}

// answerSession returns a session with holds and waits, of which some are not shown, and one without any.
func answerSession(req *wire.GetSessionRequest) (*wire.GetSessionResponse, error) {
	s := &wire.SessionInfo{SessionId: req.GetSessionId(), TtlMs: 15_000, Client: web(), Identity: "billing", HeartbeatAgeMs: proto.Uint64(1_234)}
	switch req.GetSessionId() {
	case 9:
		s.Holds, s.Waits = 3, 1
		several := holder()
		several.Locks = []string{"ledger", "orders/42"}
		wait := lock().GetQueue()[0]
		wait.Locks = []string{"pool", "x"}
		return &wire.GetSessionResponse{Session: s, Revision: 300,
			Holds: []*wire.SessionHold{{Name: "ledger", Hold: several}, {Name: "shared", Hold: family()["shared"].GetHolders()[0]}},
			Waits: []*wire.SessionWait{{Name: "pool", Wait: wait}},
		}, nil
	case 12:
		s.Leased, s.HeartbeatAgeMs = true, nil
		return &wire.GetSessionResponse{Session: s, Revision: 300}, nil
	}
	return nil, &client.StatusError{Status: client.StatusNotFound, Message: "no such session"}
}

// TestContendedRefusesWhatNoClusterLists checks the flags before anything is sent.
func TestContendedRefusesWhatNoClusterLists(t *testing.T) {
	for line, word := range map[string]string{
		"contended orders/": "--prefix", "contended --by name": "queue or oldest", "contended --limit 0": "1 to 1000", "contended --limit 1001": "1 to 1000",
		"session show": "qlock session show 4611686018427387921", "session show x": "qlock sessions shows",
	} {
		if got := execTest(t, (&fakeService{t: t}).dialer, strings.Fields(line)...); got.code != exitUsage || !strings.Contains(got.err, word) {
			t.Errorf("%s: %+v", line, got)
		}
	}
}

func TestSessionShowOfNothing(t *testing.T) {
	got := execTest(t, answering(t).dialer, "session", "show", "13")
	if got.code != exitNoSuch || got.out != "" || got.err != "qlock: there is no session 13 that you may see; see qlock sessions\n" {
		t.Errorf("got %+v", got)
	}
}
