package fsm

import (
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// keyActions are the verbs of requests for keys.
var keyActions = map[string]wire.ChangeKeys_Action{
	"acquire-keys": wire.ChangeKeys_ACQUIRE, "acquire-or-extend": wire.ChangeKeys_ACQUIRE_OR_EXTEND, "extend-keys": wire.ChangeKeys_EXTEND,
	"release-keys": wire.ChangeKeys_RELEASE, "release-all": wire.ChangeKeys_RELEASE_ALL, "delete-keys": wire.ChangeKeys_DELETE,
}

// keysCommand returns a request of the Redis port of a node:
//
//	NODE as IDENTITY: ACTION KEY,KEY value=V ttl=MS
//
// Requests are numbered from 1 on, unless the line gives seq. A line with boot=N is of the node's start N, otherwise of
// its first one. version=KEY is the present version of a key, version=none that of one that does not exist.
func (s *script) keysCommand(a args) *wire.Command {
	s.seqs[a.who]++
	op := &wire.ChangeKeys{
		Action: keyActions[a.verb], Names: strings.Split(a.arg(0), ","), Value: []byte(a.pairs["value"]), TtlMs: uint32(s.number(a, "ttl", 30_000)),
		CompareBytes: s.short(a, "compare"), Force: a.has("force"),
		NodeId: a.who, Boot: s.number(a, "boot", 1), Seq: s.number(a, "seq", s.seqs[a.who]), AckedBelow: s.number(a, "below", 0),
	}
	s.seqs[a.who] = max(s.seqs[a.who]-1, op.Seq)
	switch of := a.pairs["version"]; of {
	case "":
	case "none":
		op.Version = &wire.KeyVersion{}
	default:
		if s.versions[of] == nil {
			s.t.Fatalf("the version of %q is unknown: show it first", of)
		}
		op.Version = s.versions[of]
	}
	if acquiresKeys(op) {
		op.Client = &wire.ClientInfo{Name: a.who}
	}
	return &wire.Command{Op: &wire.Command_ChangeKeys{ChangeKeys: op}}
}

// remainingCommand returns what the leader records of a key.
func (s *script) remainingCommand(a args) *wire.Command {
	k, _ := s.m.Key(a.arg(0))
	return &wire.Command{Op: &wire.Command_RecordRemaining{RecordRemaining: &wire.RecordRemaining{
		Term: s.number(a, "term", s.m.Term()), Keys: []*wire.RecordRemaining_Remaining{{
			SessionId: k.Session, Generation: s.number(a, "generation", k.Generation), RemainingMs: s.short(a, "ms"),
		}},
	}}}
}

// showKey prints a key as the Redis port sees it, and remembers its version.
func (s *script) showKey(name string) {
	k, exists := s.m.Key(name)
	s.versions[name] = &wire.KeyVersion{HoldId: k.HoldID, Generation: k.Generation}
	switch {
	case !exists:
		s.print("no such key")
	case k.Held:
		live, _ := s.m.Session(k.Session)
		s.print("value %q%s, hold %d, token %d, generation %d, ttl %d%s", k.Value, after(" of ", k.Identity), k.HoldID, k.Token, k.Generation, k.TTL,
			nonzero("remaining", uint64(live.Remaining)))
	case k.HoldID != 0:
		s.print("not a key:%s hold %d", after(" ", k.Identity), k.HoldID)
	default:
		s.print("not a key, and no exclusive hold")
	}
}
