package script_test

import (
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock/server/redis/script"
)

// describe prints an operation: action, what it has, and the reply for each outcome in the form of RESP.
func describe(c script.Call) string {
	actions := []string{"", "acquire", "acquire or extend", "extend", "add TTL", "release", "release all", "remaining", "read"}
	text := fmt.Sprintf("%s %q %q", actions[c.Action], c.Keys, c.Value)
	if c.CompareBytes != 0 {
		text += fmt.Sprintf(" first %d", c.CompareBytes)
	}
	if c.TTL != 0 {
		text += " " + c.TTL.String()
	}
	for outcome, name := range []string{"done", "extended", "absent", "other"} {
		if reply, ok := c.Replies[script.Outcome(outcome)]; ok {
			text += fmt.Sprintf("; %s %s", name, describeReply(reply))
		}
	}
	return text
}

func describeReply(r script.Reply) string {
	switch r.Kind {
	case script.Integer:
		return fmt.Sprintf(":%d", r.Integer)
	case script.Status:
		return "+" + r.Text
	case script.Bulk:
		return "$" + r.Text
	}
	return []string{"nil", "", "", "", "value", "count", "keys", "pttl"}[r.Kind]
}

// arguments makes keys a, b, ... and the arguments of a library's script.
func arguments(l library) (keys, argv [][]byte) {
	for i := range l.keys {
		keys = append(keys, []byte{byte('a' + i)})
	}
	return keys, values(l.argv...)
}

func values(all ...string) (argv [][]byte) {
	for _, arg := range all {
		argv = append(argv, []byte(arg))
	}
	return argv
}

func TestLibraries(t *testing.T) {
	for _, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			s, err := script.Recognise([]byte(l.source))
			if err != nil {
				t.Fatal(err)
			}
			call, err := s.Bind(arguments(l))
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(call); got != l.want {
				t.Errorf("the script is %s, not %s", got, l.want)
			}
		})
	}
}
