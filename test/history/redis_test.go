package history

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	releaseScript = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`
	extendScript  = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("PEXPIRE", KEYS[1], ARGV[2]) else return 0 end`
)

// hashOf returns the hash by which EVALSHA names a script.
func hashOf(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

// redisScene is a tapped connection of a Redis client.
type redisScene struct {
	t    *testing.T
	now  time.Duration
	log  *Log
	conn net.Conn
	node node
}

func newRedisScene(t *testing.T) *redisScene {
	s := &redisScene{t: t}
	s.log = New(func() time.Duration { return s.now })
	dial := s.log.TapRedis("c", func(context.Context, string) (net.Conn, error) { return &s.node, nil })
	var err error
	if s.conn, err = dial(t.Context(), "node"); err != nil {
		t.Fatal(err)
	}
	return s
}

// asks sends a command, in two pieces.
func (s *redisScene) asks(args ...string) {
	s.t.Helper()
	var b bytes.Buffer
	b.WriteString("*" + strconv.Itoa(len(args)) + "\r\n")
	for _, arg := range args {
		b.WriteString("$" + strconv.Itoa(len(arg)) + "\r\n" + arg + "\r\n")
	}
	s.now += time.Millisecond
	for _, part := range [][]byte{b.Bytes()[:9], b.Bytes()[9:]} {
		if _, err := s.conn.Write(part); err != nil {
			s.t.Fatal(err)
		}
	}
}

// replies receives bytes from the node, a few at a time.
func (s *redisScene) replies(text string) {
	s.t.Helper()
	s.now += time.Millisecond
	s.node.said.WriteString(text)
	for s.node.said.Len() > 0 {
		if _, err := s.conn.Read(make([]byte, 64)); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *redisScene) last() *KeyRequest {
	s.t.Helper()
	all := s.log.History().KeyRequests()
	if len(all) == 0 {
		s.t.Fatal("nothing was recorded")
	}
	return all[len(all)-1]
}

// TestRedisCommandsAreRecorded verifies what is recorded of each command with each reply, in both versions of the
// protocol.
func TestRedisCommandsAreRecorded(t *testing.T) {
	const second = time.Second
	for _, c := range []struct {
		command string
		reply   string
		want    KeyRequest
	}{
		{"SET x v NX PX 1000", "+OK\r\n", KeyRequest{Action: AcquireKey, TTL: second, Outcome: OK, Done: true, Reply: "OK"}},
		{"set x v ex 1 nx", "$-1\r\n", KeyRequest{Action: AcquireKey, TTL: second, Outcome: OK, Reply: "nil"}},
		{"SET x v NX PX 1000", "_\r\n", KeyRequest{Action: AcquireKey, TTL: second, Outcome: OK, Reply: "nil"}},
		{"SET x v NX PX 1000", "-CLUSTERDOWN no\r\n", KeyRequest{Action: AcquireKey, TTL: second, Outcome: Fail, Reply: "CLUSTERDOWN no"}},
		{"QL.LOCK x v PX 1000 WAIT 9", ":77\r\n", KeyRequest{Action: AwaitKey, TTL: second, Outcome: OK, Done: true, Token: 77, Reply: "77"}},
		{"QL.LOCK x v PX 1000 WAIT 9", "$2\r\n77\r\n", KeyRequest{Action: AwaitKey, TTL: second, Outcome: OK, Done: true, Token: 77, Reply: "77"}},
		{"QL.LOCK x v PX 1000 WAIT 9", "_\r\n", KeyRequest{Action: AwaitKey, TTL: second, Outcome: OK, Reply: "nil"}},
		{"QL.TOKEN x v", ":77\r\n", KeyRequest{Action: ReadToken, Outcome: OK, Done: true, Token: 77, Reply: "77"}},
		{"EVAL " + strings.ReplaceAll(releaseScript, " ", "\t") + " 1 x v", ":1\r\n", KeyRequest{Action: ReleaseKey, Outcome: OK, Done: true, Reply: "1"}},
		{"EVAL " + strings.ReplaceAll(releaseScript, " ", "\t") + " 1 x v", ":-1\r\n", KeyRequest{Action: ReleaseKey, Outcome: OK, Reply: "-1"}},
		{"EVAL " + strings.ReplaceAll(extendScript, " ", "\t") + " 1 x v 1000", ":0\r\n", KeyRequest{Action: ExtendKey, TTL: second, Outcome: OK, Reply: "0"}},
	} {
		s := newRedisScene(t)
		s.asks("HELLO", "3", "SETNAME", "c")
		s.replies("%2\r\n+proto\r\n:3\r\n$4\r\nmode\r\n*1\r\n_\r\n>1\r\n+pushed\r\n")
		s.asks(strings.Split(c.command, " ")...)
		s.replies(c.reply)
		want := c.want
		want.Client, want.Conn, want.Lock, want.Value, want.Call, want.Return = "c", 1, "x", "v", 3*time.Millisecond, 4*time.Millisecond
		if got := *s.last(); got != want {
			t.Errorf("%s\n is %+v\nwant %+v", c.command, got, want)
		}
		if faults := s.log.History().Faults(); len(faults) > 0 {
			t.Errorf("%s: %v", c.command, *faults[0])
		}
	}
}

// TestScriptsAreRecordedByTheirHash verifies that scripts are recorded by the hash of a source that was seen before, and
// replies in the order of the commands.
func TestScriptsAreRecordedByTheirHash(t *testing.T) {
	s := newRedisScene(t)
	s.asks("EVALSHA", hashOf(releaseScript), "1", "x", "v")
	s.replies("-NOSCRIPT No matching script.\r\n")
	if n := len(s.log.History().KeyRequests()); n != 0 {
		t.Errorf("%d requests with a script that was never seen", n)
	}
	s.asks("EVAL", releaseScript, "1", "x", "v")
	s.asks("EVALSHA", hashOf(releaseScript), "1", "y", "w")
	s.replies(":1\r\n:0\r\n")
	all := s.log.History().KeyRequests()
	if len(all) != 2 || !all[0].Done || all[1].Done || all[1].Action != ReleaseKey || all[1].Lock != "y" {
		t.Errorf("recorded %+v", all)
	}
	if s.asks("QL.TOKEN", "x", "v"); s.last().Return != Never || s.last().Outcome != Unknown {
		t.Errorf("a request without a reply is %+v", s.last())
	}
}

func TestTapSeesBreachesOfTheRedisProtocol(t *testing.T) {
	for what, breach := range map[string]func(s *redisScene){
		"a reply to no command": func(s *redisScene) { s.replies("+OK\r\n") },
		"no Redis protocol":     func(s *redisScene) { s.asks("PING", "x"); s.replies("OK\r\n") },
		"a reply to acquire":    func(s *redisScene) { s.asks("SET", "x", "v", "NX", "PX", "9"); s.replies(":1\r\n") },
		"a reply to release":    func(s *redisScene) { s.asks("EVAL", releaseScript, "1", "x", "v"); s.replies("+OK\r\n") },
		"a reply to token":      func(s *redisScene) { s.asks("QL.TOKEN", "x", "v"); s.replies(":0\r\n") },
	} {
		s := newRedisScene(t)
		breach(s)
		if faults := s.log.History().Faults(); len(faults) != 1 || !strings.Contains(faults[0].Text, what) {
			t.Errorf("%q: the faults are %v", what, faults)
		}
	}
}

// TestKeyLastsAsPromised verifies that a key lasts until the time that was promised last, unless it is given up before.
func TestKeyLastsAsPromised(t *testing.T) {
	now := time.Second
	log := New(func() time.Duration { return now })
	held := log.Grant(Hold{Client: "c", Value: "v", Locks: Exclusive("x")})
	ended := func() time.Duration { return log.History().Holds()[0].Ended }
	for _, until := range []time.Duration{3 * time.Second, 5 * time.Second} {
		if held.LastsUntil(until); ended() != until {
			t.Errorf("it ended at %v, want %v", ended(), until)
		}
	}
	now = 4 * time.Second
	held.End()
	held.LastsUntil(9 * time.Second)
	if ended() != now {
		t.Errorf("it ended at %v, want %v", ended(), now)
	}
}
