package judge

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func moved(m move, from, to time.Duration) porcupine.Operation {
	return porcupine.Operation{Input: m, Call: int64(from), Return: int64(to)}
}

func take(session, token, before uint64) move {
	return move{kind: takes, session: session, token: token, before: before}
}

func giveBack(session, token uint64) move {
	return move{kind: givesBack, session: session, token: token}
}

// TestSequential checks sequences that clients can and cannot have produced one after the other.
func TestSequential(t *testing.T) {
	maybe := func(m move) move { m.unknown = true; return m }
	dead := func(session uint64) move { return move{kind: dies, session: session} }
	for what, c := range map[string]struct {
		want  porcupine.CheckResult
		moves []porcupine.Operation
	}{
		"in turn": {porcupine.Ok, []porcupine.Operation{
			moved(take(1, 5, 0), 0, 1), moved(take(2, 7, 5), 0, 9), moved(giveBack(1, 5), 2, 8), moved(giveBack(2, 7), 10, 11),
		}},
		"two at once": {porcupine.Illegal, []porcupine.Operation{
			moved(take(1, 5, 0), 0, 1), moved(take(2, 7, 5), 0, 3), moved(giveBack(1, 5), 4, 8),
		}},
		"tokens fall": {porcupine.Illegal, []porcupine.Operation{
			moved(take(1, 7, 5), 0, 1), moved(giveBack(1, 7), 2, 3), moved(take(2, 5, 0), 4, 5),
		}},
		"released by nobody": {porcupine.Illegal, []porcupine.Operation{moved(giveBack(1, 5), 2, 3)}},
		"after a death": {porcupine.Ok, []porcupine.Operation{
			moved(take(1, 5, 0), 0, 1), moved(dead(1), 4, 8), moved(take(2, 7, 5), 0, 7),
		}},
		"before a death": {porcupine.Illegal, []porcupine.Operation{
			moved(take(1, 5, 0), 0, 1), moved(dead(1), 4, 8), moved(take(2, 7, 5), 0, 3),
		}},
		"by the dead": {porcupine.Illegal, []porcupine.Operation{moved(dead(1), 0, 1), moved(take(1, 5, 0), 2, 3)}},
		"perhaps taken, and given back by death": {porcupine.Ok, []porcupine.Operation{
			moved(maybe(take(1, 0, 0)), 0, 9), moved(dead(1), 8, 9), moved(take(2, 7, 0), 1, 3),
		}},
		"perhaps given back": {porcupine.Ok, []porcupine.Operation{
			moved(take(1, 5, 0), 0, 1), moved(maybe(giveBack(1, 5)), 2, history.Never), moved(take(2, 7, 5), 3, 4),
		}},
		"perhaps given back, but later": {porcupine.Illegal, []porcupine.Operation{
			moved(take(1, 5, 0), 0, 1), moved(maybe(giveBack(1, 5)), 6, history.Never), moved(take(2, 7, 5), 3, 4),
		}},
		"not held, though it is": {porcupine.Illegal, []porcupine.Operation{
			moved(take(1, 5, 0), 0, 1), moved(move{kind: mistakes, session: 1, token: 5}, 2, 3),
		}},
	} {
		if got := porcupine.CheckOperationsTimeout(sequential(lockState{}), c.moves, time.Minute); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

// TestWindows checks locks as clients saw them.
func TestWindows(t *testing.T) {
	s, _ := queue(t)
	if c := s.accepted(); c.Windows != 1 {
		t.Errorf("%d windows", c.Windows)
	}
	s.pushes()[0].At = s.ops("release")[0].Call - 1
	s.refused("porcupine says Illegal")

	s, _ = queue(t)
	s.ops("acquire")[0].Response.Result.Token = 2_000
	s.refused("porcupine says Illegal")
}

// TestWindowsAreCutWhereNothingIsUnderWay also verifies that a window knows what came before it.
func TestWindowsAreCutWhereNothingIsUnderWay(t *testing.T) {
	s := newStage(t)
	a := s.open(ttl)
	for range windowMoves * 2 {
		s.release(a, s.lock(a, "x"))
		s.pass(time.Millisecond)
	}
	if c := s.accepted(); c.Windows < 3 {
		t.Errorf("%d windows", c.Windows)
	}
	last := s.ops("acquire")[windowMoves+10].Response.Result
	last.Token -= 20
	s.refused("porcupine says Illegal")
}

// TestRequestAfterItsSessionsDeath verifies that a request without an answer explains nothing if it was sent after the
// death of its session was known: its client was suspended.
func TestRequestAfterItsSessionsDeath(t *testing.T) {
	s := newStage(t)
	a, b := s.open(ttl), s.open(time.Minute)
	s.release(a, s.lock(a, "x"))
	s.pass(ttl + time.Second)
	s.expire(a)
	s.release(b, s.lock(b, "x"))
	s.records = append(s.records, history.Record{Op: &history.Op{
		Client: client(a), Kind: "acquire", Session: a, Seq: 9, Call: s.now, Return: history.Never,
		Request: &wire.Request{SessionId: a, Seq: 9, Body: &wire.Request_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "x"}}, WaitForever: true}}},
	}})
	if n := s.accepted().Windows; n != 1 {
		t.Errorf("%d windows", n)
	}
}
