package raftlog

import (
	"cmp"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Config configures a Logger.
type Config struct {
	// NodeID is the ID of this node.
	NodeID string
	// Logger receives the lines.
	Logger hclog.Logger
	// Node returns the ID of the node with that address in raft's configuration, "" if there is none. It must not
	// block. Default: there is none.
	Node func(raft.ServerAddress) string
}

// Logger is raft's logger. It is safe for concurrent use.
type Logger struct {
	hclog.Logger
	cfg     *Config
	with    []any // keys and values of every line
	outages *outages
	search  *search
}

var _ hclog.Logger = (*Logger)(nil)

// New creates a Logger.
func New(cfg Config) *Logger {
	if cfg.Node == nil {
		cfg.Node = func(raft.ServerAddress) string { return "" }
	}
	return &Logger{Logger: cfg.Logger, cfg: &cfg, outages: newOutages(cfg.Logger), search: newSearch(cfg.NodeID, cfg.Logger)}
}

// Log implements hclog.Logger.
func (l *Logger) Log(level hclog.Level, message string, args ...any) {
	if level < hclog.Info {
		l.plain(level, message, args)
		return
	}
	rule, known := table[message]
	if !known {
		l.plain(level, message, args)
		return
	}
	if rule.count != nil {
		rule.count(l, args)
	}
	if rule.text == "" {
		l.plain(hclog.Debug, message, args)
		return
	}
	translated := l.translate(args)
	if rule.level >= hclog.Error {
		translated = append(translated, "raft", message)
	}
	l.Logger.Log(rule.level, rule.text, translated...)
}

// plain logs a message in raft's words.
func (l *Logger) plain(level hclog.Level, message string, args []any) {
	l.Logger.Log(level, message, append(l.translate(args), "subsystem", "raft")...)
}

// Trace implements hclog.Logger.
func (l *Logger) Trace(message string, args ...any) { l.Log(hclog.Trace, message, args...) }

// Debug implements hclog.Logger.
func (l *Logger) Debug(message string, args ...any) { l.Log(hclog.Debug, message, args...) }

// Info implements hclog.Logger.
func (l *Logger) Info(message string, args ...any) { l.Log(hclog.Info, message, args...) }

// Warn implements hclog.Logger.
func (l *Logger) Warn(message string, args ...any) { l.Log(hclog.Warn, message, args...) }

// Error implements hclog.Logger.
func (l *Logger) Error(message string, args ...any) { l.Log(hclog.Error, message, args...) }

// With implements hclog.Logger.
func (l *Logger) With(args ...any) hclog.Logger {
	derived := *l
	derived.with = append(append([]any{}, l.with...), args...)
	return &derived
}

// Named implements hclog.Logger. Raft's parts have no names of their own.
func (l *Logger) Named(string) hclog.Logger { return l }

// ResetNamed implements hclog.Logger.
func (l *Logger) ResetNamed(string) hclog.Logger { return l }

// Attach lets the logger learn from raft who leads, and which nodes answer.
func (l *Logger) Attach(node *raft.Raft) {
	node.RegisterObserver(raft.NewObserver(nil, false, l.Observe))
	if _, id := node.LeaderWithID(); id != "" { // found before that
		l.Follow(id, node.CurrentTerm())
	}
}

// Observe is a raft.FilterFn. It learns who leads, and which nodes answer again. Raft calls it when that happens.
func (l *Logger) Observe(o *raft.Observation) bool {
	switch data := o.Data.(type) {
	case raft.LeaderObservation:
		l.Follow(data.LeaderID, o.Raft.CurrentTerm())
	case raft.RaftState:
		l.outages.forget() // only a leader knows who answers
	case raft.ResumedHeartbeatObservation:
		l.outages.ended(string(data.PeerID))
	case raft.PeerObservation:
		if data.Removed {
			l.outages.removed(string(data.Peer.ID))
		}
	}
	return false
}

// Follow records the leader that raft follows, "" if there is none.
func (l *Logger) Follow(leader raft.ServerID, term uint64) {
	if leader == "" {
		l.search.began()
		return
	}
	l.search.found(string(leader), term)
}

// node returns the ID of the node that a message is about, "" if it is about none. For want of an ID, it is an address.
func (l *Logger) node(args []any) string {
	for i := 0; i+1 < len(args); i += 2 {
		switch v := args[i+1].(type) {
		case raft.Server:
			return string(v.ID)
		case raft.ServerAddress:
			return cmp.Or(l.cfg.Node(v), string(v))
		case raft.ServerID:
			return string(v)
		}
	}
	return ""
}

// failure returns the error of a message, nil if it has none.
func failure(args []any) error {
	for i := 0; i+1 < len(args); i += 2 {
		if err, ok := args[i+1].(error); ok {
			return err
		}
	}
	return nil
}
