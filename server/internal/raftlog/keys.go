package raftlog

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// keys renames raft's keys. The others are written in snake_case.
var keys = map[string]string{
	"peer":           "node",
	"server-id":      "node",
	"candidate":      "node",
	"target":         "node",
	"last-leader-id": "leader",
	"leader-id":      "leader",
	"size":           "bytes",
	"backoff time":   "pause",
	"time":           "silence",
}

// omitted are keys of raft whose values another key has, or that say nothing.
var omitted = map[string]bool{"last-leader-addr": true, "leader-address": true, "follower": true}

// translate returns the keys and values of a message as a node logs them.
func (l *Logger) translate(args []any) []any {
	args = append(append([]any{}, l.with...), args...)
	translated := make([]any, 0, len(args)+2)
	for i := 0; i+1 < len(args); i += 2 {
		key, ok := args[i].(string)
		value, shown := l.value(args[i+1])
		if !ok || !shown || omitted[key] {
			continue
		}
		translated = append(translated, cmp.Or(keys[key], snakeCase(key)), value)
	}
	return translated
}

// value returns a value as a node logs it. shown is false for raft itself.
func (l *Logger) value(v any) (text any, shown bool) {
	switch v := v.(type) {
	case *raft.Raft:
		return nil, false
	case raft.Server:
		return string(v.ID), true
	case raft.ServerAddress:
		return cmp.Or(l.cfg.Node(v), string(v)), true
	case time.Duration:
		return v.Round(time.Millisecond).String(), true
	case error, hclog.Format, string, bool, int, int64, uint64:
		return v, true
	}
	return fmt.Sprint(v), true
}

// snakeCase returns a key of raft in snake_case: "percent-complete", "votesNeeded".
func snakeCase(key string) string {
	var b strings.Builder
	for _, r := range key {
		switch {
		case r == '-' || r == ' ':
			b.WriteByte('_')
		case r >= 'A' && r <= 'Z':
			b.WriteByte('_')
			b.WriteRune(r - 'A' + 'a')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
