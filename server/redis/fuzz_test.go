package redis

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// FuzzCommands executes lines of words as commands. Each has exactly one reply, and none panics or changes what others
// hold.
func FuzzCommands(f *testing.F) {
	for _, seed := range []string{
		"SET k v NX PX 50\nGET k\nDEL k", "WATCH k\nMULTI\nDEL k\nEXEC\nEXEC", "HELLO 3 SETNAME x\nQL.WHO theirs\nCOMMAND DOCS get",
		"SCRIPT LOAD return\nEVALSHA x 1 k v\nEVAL x 0", "DELEX theirs IFEQ v\nDEL theirs\nSET theirs v PX 50\nPEXPIRE theirs 50", "CLIENT REPLY SKIP\nPING\nCLIENT REPLY OFF\nRESET",
		"SELECT 3\nEXISTS a a\nWAIT 1 1\nINFO all\nROLE\nCLIENT LIST\nAUTH a b\nQUIT", "EVAL " + compareAndDelete + " 1 theirs w",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p := serve(t, nil)
		p.service.hold("theirs", &wire.KeyState{Key: true, Identity: "them", Value: []byte("w"), RemainingMs: 5000})
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		place := p.handshakes.Begin(ours)
		defer place.End()
		c := newConn(p.Server, ours, place)
		defer func() { c.logout() }()
		for line := range bytes.SplitSeq(text, []byte("\n")) {
			args := bytes.Fields(line)
			if len(args) == 0 || find(args[0]) == byName["ql.lock"] {
				continue // it would wait
			}
			silent := c.mode != replyAll
			err := c.execute(args)
			if err != nil && !errors.Is(err, errClose) {
				t.Fatalf("%q: %v", args, err)
			}
			replies := bufio.NewReader(bytes.NewReader(c.out.Bytes()))
			reply, parsed := readReply(replies)
			if left, _ := io.ReadAll(replies); len(left) > 0 || parsed != nil && parsed != io.EOF || parsed == io.EOF && reply != "" {
				t.Fatalf("%q: the reply is %q and %q", args, reply, left)
			}
			if parsed == io.EOF && err == nil && !silent && c.mode == replyAll {
				t.Fatalf("%q: no reply", args)
			}
			if err != nil {
				break
			}
			c.out.Reset()
		}
		if key := p.service.keys["theirs"]; key == nil || key.Identity != "them" || key.RemainingMs != 5000 {
			t.Fatalf("%q changes what others hold: %v", text, key)
		}
	})
}
