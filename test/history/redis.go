package history

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"net"
	"strconv"
	"strings"
	"time"
)

// TapRedis is Tap for connections of Redis clients: it records their requests for keys. It supports plain
// connections, not TLS.
func (l *Log) TapRedis(client string, dial DialFunc) DialFunc {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns++
		return &tappedRedis{Conn: conn, log: l, client: client, id: l.conns}, nil
	}
}

// tappedRedis is one connection of a Redis client. Its own state is guarded by the log's mutex.
type tappedRedis struct {
	net.Conn
	log     *Log
	client  string
	id      uint64
	out, in bytes.Buffer
	// flight are the commands without a reply, in order; nil for one that is not recorded.
	flight []*KeyRequest
}

// Write records requests before they are sent.
func (t *tappedRedis) Write(b []byte) (int, error) {
	t.log.mu.Lock()
	t.out.Write(b)
	t.each(&t.out, t.command)
	t.log.mu.Unlock()
	return t.Conn.Write(b)
}

// Read records replies after they have arrived.
func (t *tappedRedis) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	t.log.mu.Lock()
	defer t.log.mu.Unlock()
	t.in.Write(b[:n])
	t.each(&t.in, t.reply)
	return n, err
}

// each removes the complete values from the buffer.
func (t *tappedRedis) each(from *bytes.Buffer, found func(respValue)) {
	for from.Len() > 0 {
		v, size, err := readRESP(from.Bytes())
		if err != nil {
			t.fault("no Redis protocol: " + err.Error())
			from.Reset()
		}
		if size == 0 {
			return
		}
		from.Next(size)
		found(v)
	}
}

func (t *tappedRedis) fault(text string) {
	t.log.records = append(t.log.records, Record{Fault: &Fault{At: t.log.now(), Text: t.client + ": " + text}})
}

func (t *tappedRedis) command(v respValue) {
	var args []string
	for _, item := range v.items {
		args = append(args, item.text)
	}
	k := t.log.keyRequest(args)
	if k != nil {
		k.Client, k.Conn, k.Call, k.Return = t.client, t.id, t.log.now(), Never
		t.log.records = append(t.log.records, Record{Key: k})
	}
	t.flight = append(t.flight, k)
}

func (t *tappedRedis) reply(v respValue) {
	if v.kind == respPush {
		return
	}
	if len(t.flight) == 0 {
		t.fault("a reply to no command")
		return
	}
	k := t.flight[0]
	t.flight = t.flight[1:]
	if k == nil {
		return
	}
	if k.Return = t.log.now(); !k.answer(v) {
		t.fault("a reply to " + string(k.Action) + " is " + k.Reply)
	}
}

// keyRequest returns the request that a command is; nil if it changes no key, or is a script not seen before.
func (l *Log) keyRequest(args []string) *KeyRequest {
	if len(args) < 3 {
		return nil
	}
	switch command := strings.ToUpper(args[0]); command {
	case "SET":
		if ttl, nx := setOptions(args[3:]); nx {
			return &KeyRequest{Action: AcquireKey, Lock: args[1], Value: args[2], TTL: ttl}
		}
	case "QL.TOKEN":
		return &KeyRequest{Action: ReadToken, Lock: args[1], Value: args[2]}
	case "QL.LOCK":
		return &KeyRequest{Action: AwaitKey, Lock: args[1], Value: args[2], TTL: milliseconds(args[4])}
	case "EVAL", "EVALSHA":
		k := &KeyRequest{Action: l.script(command, args[1])}
		if k.Action == "" || len(args) < 5 {
			return nil
		}
		if k.Lock, k.Value = args[3], args[4]; k.Action == ExtendKey {
			k.TTL = milliseconds(args[5])
		}
		return k
	}
	return nil
}

// script returns what a script does. It knows those by their hash whose source was seen before.
func (l *Log) script(command, text string) KeyAction {
	if command == "EVALSHA" {
		return l.scripts[text]
	}
	hash := sha1.Sum([]byte(text))
	action := KeyAction("")
	switch lower := strings.ToLower(text); {
	case strings.Contains(lower, `"pexpire"`):
		action = ExtendKey
	case strings.Contains(lower, `"del"`):
		action = ReleaseKey
	}
	l.scripts[hex.EncodeToString(hash[:])] = action
	return action
}

// setOptions returns the TTL among the options of SET, and whether NX is one.
func setOptions(options []string) (ttl time.Duration, nx bool) {
	for i, option := range options {
		switch strings.ToUpper(option) {
		case "NX":
			nx = true
		case "PX":
			ttl = milliseconds(options[i+1])
		case "EX":
			ttl = 1000 * milliseconds(options[i+1])
		}
	}
	return ttl, nx
}

// milliseconds returns 0 for what is no number: the node refuses the command.
func milliseconds(text string) time.Duration {
	n, _ := strconv.ParseInt(text, 10, 64)
	return time.Duration(n) * time.Millisecond
}
