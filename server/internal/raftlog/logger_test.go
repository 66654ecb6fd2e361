package raftlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/test/bubble"
)

// attempts is the interval between two attempts to reach a node.
const attempts = 250 * time.Millisecond

// logTo returns the Logger of node n1, at that level.
func logTo(out *bytes.Buffer, level hclog.Level) *Logger {
	return New(Config{
		NodeID: "n1",
		Logger: hclog.New(&hclog.LoggerOptions{Output: out, Level: level, DisableTime: true}),
		Node: func(addr raft.ServerAddress) string {
			return map[raft.ServerAddress]string{"h2:7401": "n2", "h3:7401": "n3"}[addr]
		},
	})
}

var (
	errRefused = errors.New("connection refused")
	n2, n3     = raft.Server{ID: "n2", Address: "h2:7401"}, raft.Server{ID: "n3", Address: "h3:7401"}
)

// TestMessages verifies which lines single messages of raft become.
func TestMessages(t *testing.T) {
	for _, c := range []struct {
		log  func(l hclog.Logger)
		info string
		all  string
	}{
		{func(l hclog.Logger) { l.Warn("previous log term mis-match", "ours", uint64(3)) },
			"", "[DEBUG] previous log term mis-match: ours=3 subsystem=raft\n"},
		{func(l hclog.Logger) { l.Info("installing snapshot on", "peer", n3.ID, "size", int64(12)) },
			"[INFO]  sending a snapshot to a node that lacks old entries: node=n3 bytes=12\n", ""},
		{func(l hclog.Logger) { l.Error("failed to get log", "index", uint64(7), "error", errRefused) },
			"[ERROR] cannot read an entry of the log: index=7 error=\"connection refused\" raft=\"failed to get log\"\n", ""},
		{func(l hclog.Logger) {
			l.Error("a new message", "server-id", n2.ID, "backoff time", 20*time.Millisecond, "votesNeeded", 2)
		},
			"[ERROR] a new message: node=n2 pause=20ms votes_needed=2 subsystem=raft\n", ""},
		{func(l hclog.Logger) {
			l.With("id", "s1").Named("x").Warn("a new message", "peer", n2, "last-leader-addr", n2.Address)
		},
			"[WARN]  a new message: id=s1 node=n2 subsystem=raft\n", ""},
		{func(l hclog.Logger) { l.Warn("a new message", "from", n2.Address, "to", raft.ServerAddress("h9:1")) },
			"[WARN]  a new message: from=n2 to=h9:1 subsystem=raft\n", ""},
		{func(l hclog.Logger) { l.Log(hclog.Info, "entering leader state", "leader", (*raft.Raft)(nil)) },
			"", "[DEBUG] entering leader state: subsystem=raft\n"},
		{func(l hclog.Logger) { l.Debug("vote granted", "from", n2.ID) }, "", "[DEBUG] vote granted: from=n2 subsystem=raft\n"},
	} {
		for level, want := range map[hclog.Level]string{hclog.Info: c.info, hclog.Debug: c.info + c.all} {
			var out bytes.Buffer
			c.log(logTo(&out, level))
			if out.String() != want {
				t.Errorf("%v: got %q, want %q", level, out.String(), want)
			}
		}
	}
}

// outage makes all attempts to reach a node fail for that time.
func outage(l *Logger, s raft.Server, lasts, every time.Duration) {
	for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(every) {
		l.Error("failed to heartbeat to", "peer", s.Address, "backoff time", 250*time.Millisecond, "error", errRefused)
	}
}

func answers(l *Logger, id raft.ServerID) {
	l.Observe(&raft.Observation{Data: raft.ResumedHeartbeatObservation{PeerID: id}})
}

// TestOutage verifies what is logged while a node does not answer, with its counts, and when it does again.
func TestOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := logTo(&out, hclog.Info)
		outage(l, n3, 50*time.Second, attempts)
		answers(l, n3.ID)
		if out.Len() != 0 {
			t.Errorf("a short outage is logged here: %s", out.String())
		}
		outage(l, n3, 10*time.Minute, attempts)
		l.Error("failed to appendEntries to", "peer", n3, "error", errRefused)
		answers(l, n2.ID)
		answers(l, n3.ID)
		answers(l, n3.ID)
		const line = "[WARN]  a node still does not answer: node=n3 silence=%s attempts=%d error=\"connection refused\"\n"
		want := fmt.Sprintf(line+line+line, "1m0s", 241, "3m0s", 721, "7m0s", 1681) +
			"[INFO]  a node answers again: node=n3 silence=10m0s attempts=2401\n"
		if out.String() != want {
			t.Errorf("got\n%swant\n%s", out.String(), want)
		}
	})
}

// TestLongOutage verifies that a line comes at least every hour.
func TestLongOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := logTo(&out, hclog.Info)
		outage(l, n3, 24*time.Hour, 10*time.Second)
		if n := strings.Count(out.String(), "still does not answer"); n < 24 || n > 30 {
			t.Errorf("%d lines in a day:\n%s", n, out.String())
		}
	})
}

// TestOutagesEnd verifies that a node is forgotten when it is removed, and all are when this node no longer leads.
func TestOutagesEnd(t *testing.T) {
	for _, event := range []any{raft.PeerObservation{Removed: true, Peer: n3}, raft.Follower} {
		bubble.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			l := logTo(&out, hclog.Info)
			outage(l, n3, 59*time.Second, attempts)
			l.Observe(&raft.Observation{Data: event})
			outage(l, n3, 59*time.Second, attempts)
			answers(l, n3.ID)
			if out.Len() != 0 {
				t.Errorf("%v: %s", event, out.String())
			}
		})
	}
}

// TestSearch verifies what a node logs that has lost its leader: once that it is silent, then how long none is found.
func TestSearch(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := logTo(&out, hclog.Info)
		l.Follow("n2", 4)
		l.Follow("n2", 4)
		l.Follow("", 0)
		for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
			l.Warn("heartbeat timeout reached, starting election", "last-leader-addr", n2.Address, "last-leader-id", n2.ID)
			l.Info("entering candidate state", "node", (*raft.Raft)(nil), "term", uint64(5))
			for _, s := range []raft.Server{n3, n2} {
				l.Error("failed to make requestVote RPC", "target", s, "error", errRefused, "term", uint64(5))
			}
			l.Warn("Election timeout reached, restarting election")
		}
		l.Follow("n3", 6)
		l.Follow("", 0)
		l.Info("entering candidate state")
		l.Follow("n1", 7)
		l.Follow("n3", 8)
		const still = "[WARN]  still no leader: this node calls elections and does not win: silence=%s elections=%d unreachable=[\"n2\", \"n3\"]\n"
		want := "[INFO]  following a leader: leader=n2 term=4\n" +
			"[WARN]  the leader is silent: calling an election: leader=n2\n" +
			fmt.Sprintf(still+still, "1m0s", 61, "3m0s", 181) +
			"[INFO]  following a leader: leader=n3 term=6 silence=4m0s elections=240\n" +
			"[INFO]  following a leader: leader=n3 term=8\n"
		if out.String() != want {
			t.Errorf("got\n%swant\n%s", out.String(), want)
		}
	})
}

// TestJSON verifies that values in JSON are texts where they are in the text format.
func TestJSON(t *testing.T) {
	var out bytes.Buffer
	l := New(Config{NodeID: "n1", Logger: hclog.New(&hclog.LoggerOptions{Output: &out, JSONFormat: true})})
	l.Error("a new message", "backoff time", 20*time.Millisecond, "state", raft.Leader, "peer", n2, "term", uint64(3))
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"pause": "20ms", "state": "Leader", "node": "n2", "term": 3.0, "@message": "a new message", "@level": "error"} {
		if line[key] != want {
			t.Errorf("%s is %v, want %v", key, line[key], want)
		}
	}
}

// TestConcurrentUse logs from several goroutines, as raft does, and counts every attempt.
func TestConcurrentUse(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := logTo(&out, hclog.Info)
		var running sync.WaitGroup
		for _, s := range []raft.Server{n2, n3} {
			running.Go(func() { outage(l, s, 2*time.Minute, attempts) })
		}
		running.Go(func() {
			for range 100 {
				l.Follow("", 0)
				l.Info("entering candidate state")
				l.Error("failed to make requestVote RPC", "target", n2, "error", errRefused)
				l.Follow("n1", 1)
			}
		})
		running.Wait()
		answers(l, n2.ID)
		answers(l, n3.ID)
		if n := strings.Count(out.String(), "silence=2m0s attempts=480"); n != 2 {
			t.Errorf("%d lines with all attempts:\n%s", n, out.String())
		}
	})
}
