package redis

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/server/internal/keys"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestTransactions checks WATCH, MULTI and EXEC on a key that stays as it was.
func TestTransactions(t *testing.T) {
	held := dialogue{{"SET k v NX PX 50", ok}}
	for name, d := range map[string]dialogue{
		"compare and delete": {{"WATCH k", ok}, {"GET k", "$1\r\nv\r\n"}, {"MULTI", ok}, {"DEL k", queue}, {"EXEC", "*1\r\n:1\r\n"}, {"EXISTS k", zero}},
		"unlink":             {{"WATCH k", ok}, {"MULTI", ok}, {"UNLINK k", queue}, {"EXEC", "*1\r\n:1\r\n"}},
		"extend":             {{"WATCH k", ok}, {"MULTI", ok}, {"PEXPIRE k 70", queue}, {"EXEC", "*1\r\n:1\r\n"}, {"PTTL k", ":70\r\n"}},
		"get":                {{"WATCH k", ok}, {"MULTI", ok}, {"GET k", queue}, {"EXEC", "*1\r\n$1\r\nv\r\n"}},
		"absent":             {{"WATCH j", ok}, {"MULTI", ok}, {"DEL j", queue}, {"EXEC", "*1\r\n:0\r\n"}},
		"absent extended":    {{"WATCH j", ok}, {"MULTI", ok}, {"EXPIRE j 7", queue}, {"EXEC", "*1\r\n:0\r\n"}},
		"without watch":      {{"MULTI", ok}, {"DEL k", queue}, {"EXEC", "*1\r\n:1\r\n"}},
		"nothing":            {{"MULTI", ok}, {"EXEC", "*0\r\n"}},
		"unwatched":          {{"WATCH k", ok}, {"UNWATCH", ok}, {"WATCH j", ok}, {"MULTI", ok}, {"DEL j", queue}, {"EXEC", "*1\r\n:0\r\n"}},
		"discarded":          {{"MULTI", ok}, {"DEL k", queue}, {"DISCARD", ok}, {"EXISTS k", one}, {"EXEC", "-ERR EXEC without MULTI\r\n"}},
		"two operations":     {{"MULTI", ok}, {"DEL k", queue}, {"DEL k", "-ERR DEL in MULTI after another operation is not supported…"}, {"EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"}, {"EXISTS k", one}},
		"other operations":   {{"MULTI", ok}, {"SET k v PX 50", "-ERR SET in MULTI…"}, {"EXEC", "-EXECABORT …"}},
		"several keys":       {{"MULTI", ok}, {"DEL k j", "-ERR DEL in MULTI with several keys…"}, {"EXEC", "-EXECABORT …"}},
		"long arguments":     {{"MULTI", ok}, {"DEL " + strings.Repeat("x", maxQueuedBytes), "-ERR DEL in MULTI with such long arguments…"}, {"EXEC", "-EXECABORT …"}},
		"another key":        {{"WATCH j", ok}, {"MULTI", ok}, {"DEL k", "-ERR DEL in MULTI with another key…"}, {"EXEC", "-EXECABORT …"}},
		"mistakes": {
			{"EXEC", "-ERR EXEC without MULTI\r\n"}, {"DISCARD", "-ERR DISCARD without MULTI\r\n"}, {"WATCH k j", "-ERR WATCH of more than one key…"}, {"WATCH k", ok}, {"WATCH k", ok},
			{"WATCH j", "-ERR WATCH of more than one key…"}, {"MULTI", ok}, {"MULTI", "-ERR MULTI calls can not be nested\r\n"}, {"WATCH k", "-ERR WATCH inside MULTI is not allowed\r\n"},
			{"NOPE", "-ERR unknown command 'NOPE'…"}, {"EXEC", "-EXECABORT …"}, {"PING", "+PONG\r\n"},
		},
		"wrong arity": {{"MULTI", ok}, {"DEL", "-ERR wrong number…"}, {"EXEC", "-EXECABORT …"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, serve(t, nil))
			held.run(t, c)
			d.run(t, c)
		})
	}
}

// TestWatchedKeyChanges checks that EXEC does nothing after each change of the watched key.
func TestWatchedKeyChanges(t *testing.T) {
	for change, words := range map[string][]string{
		"extended":   {"PEXPIRE k 60"},
		"released":   {"DEL k"},
		"held again": {"DEL k", "SET k v NX PX 50"},
	} {
		for operation, left := range map[string]string{"DEL k": one, "PEXPIRE k 70": one, "GET k": one} {
			t.Run(change+" "+operation, func(t *testing.T) {
				p := serve(t, nil)
				c, other := dial(t, p), dial(t, p)
				dialogue{{"SET k v NX PX 50", ok}, {"WATCH k", ok}, {"MULTI", ok}, {operation, queue}}.run(t, c)
				for _, w := range words {
					other.do(w)
				}
				before := other.do("PTTL k")
				dialogue{{"EXEC", "*-1\r\n"}, {"EXEC", "-ERR EXEC without MULTI\r\n"}, {"MULTI", ok}, {"EXEC", "*0\r\n"}}.run(t, c)
				if got := other.do("PTTL k"); got != before {
					t.Errorf("EXEC made %q of %q", got, before)
				}
				if change != "released" && other.do("EXISTS k") != left {
					t.Error("the key is gone")
				}
			})
		}
	}
	p := serve(t, nil)
	c := dial(t, p)
	dialogue{{"WATCH k", ok}, {"MULTI", ok}, {"DEL k", queue}}.run(t, c)
	dialogue{{"SET k v NX PX 50", ok}}.run(t, dial(t, p))
	dialogue{{"EXEC", "*-1\r\n"}, {"EXISTS k", one}}.run(t, c)
}

// TestRefusedTransaction checks that the refusal of the operation is the reply to EXEC.
func TestRefusedTransaction(t *testing.T) {
	p := serve(t, nil)
	p.service.hold("theirs", &wire.KeyState{Key: true, Identity: "them"})
	c := dial(t, p)
	dialogue{{"MULTI", ok}, {"DEL theirs", queue}, {"EXEC", "-NOPERM …"}, {"PING", "+PONG\r\n"}, {"MULTI", ok}, {"DEL k", queue}}.run(t, c)
	p.service.failNext(keys.ErrUnknown)
	c.send(encoded("EXEC"))
	if got := c.ended(); got != "" {
		t.Errorf("EXEC with an unknown outcome: %q", got)
	}
}
