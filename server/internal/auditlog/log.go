package auditlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// ErrFile is returned if the file cannot be opened at the start.
var ErrFile = errors.New("cannot open the audit log")

const (
	// maxQueued bounds the lines that wait for the disk, maxQueuedBytes their total size.
	maxQueued      = 4096
	maxQueuedBytes = 4 << 20
	// lineBytes is the size of a line besides its record or its denial, in bytes, more or less.
	lineBytes = 256
)

// Config configures a Log.
type Config struct {
	// Path is the file. Without one, records are ignored and denials only logged.
	Path   string
	NodeID string
	// ClusterID returns the cluster's id, empty before bootstrap. Deny calls it.
	ClusterID func() string
	// Logger gets the denials and the failures of the file.
	Logger hclog.Logger
	// Registry collects the metrics; nil for none.
	Registry prometheus.Registerer
}

// Log writes the file. Its methods do not wait for the disk: a goroutine writes what is queued. If the queue is full,
// because the disk fails or is slow, lines are dropped, and the file says how many once it can be written again. A
// failing disk does not stop the node: the records are in the replicated state as well. All methods are safe for
// concurrent use.
type Log struct {
	cfg      Config
	log      hclog.Logger
	metrics  *metrics
	verified *limiter // of denials of verified callers
	others   *limiter // of denials of all others, so that these cannot hide those

	mu      sync.Mutex // guards the fields below
	queue   []queued
	size    int    // of the queue, in bytes
	dropped uint64 // lines since the last one in queue

	wake, reopen chan struct{} // each has a capacity of one
	closing      context.Context
	stop         context.CancelFunc
	done         chan struct{} // closed when the writer has ended
}

// queued is a line to write: a record, a local act or a denial.
type queued struct {
	cluster string
	record  *wire.AuditRecord
	local   json.RawMessage
	denied  *denied
	wall    time.Time
}

// bytes returns about how much memory the line takes.
func (q queued) bytes() int {
	size := lineBytes + proto.Size(q.record) + len(q.local)
	if d := q.denied; d != nil {
		size += len(d.Caller) + len(d.Request) + len(d.Message)
	}
	return size
}

// Open opens the file, if there is one, and starts to write to it. It returns ErrFile.
func Open(cfg Config) (*Log, error) {
	l, err := newLog(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Path == "" {
		close(l.done)
		return l, nil
	}
	file, at, err := openFile(cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	l.start(file, at)
	return l, nil
}

func newLog(cfg Config) (*Log, error) {
	l := &Log{
		cfg: cfg, log: cfg.Logger, verified: newLimiter(), others: newLimiter(),
		wake: make(chan struct{}, 1), reopen: make(chan struct{}, 1), done: make(chan struct{}),
	}
	l.closing, l.stop = context.WithCancel(context.Background())
	var err error
	l.metrics, err = newMetrics(cfg.Registry)
	return l, err
}

// start starts the writer.
func (l *Log) start(file *file, at position) {
	w := &writer{Log: l, file: file, at: at, repeated: ratelog.NewRepeated(l.log)}
	go w.run()
}

// Append queues audit records that the node has applied, in the order of their ids. Those that the file has already
// are not written again. The records must not change afterwards.
func (l *Log) Append(cluster string, records []*wire.AuditRecord) {
	if l.cfg.Path == "" {
		return
	}
	now := time.Now()
	lines := make([]queued, 0, len(records))
	for _, r := range records {
		lines = append(lines, queued{cluster: cluster, record: r, wall: now})
	}
	l.enqueue(lines...)
}

// AppendLocal queues an act that this node has performed without a leader.
func (l *Log) AppendLocal(act *wire.AuditRecord) {
	if l.cfg.Path == "" {
		return
	}
	text, err := compactJSON(act)
	if err != nil {
		l.log.Error("cannot write an act to the audit log", "act", act.GetAction().String(), "error", err)
		return
	}
	l.enqueue(queued{cluster: l.cfg.ClusterID(), local: text, wall: time.Now()})
}

// Deny logs a denial and queues its line, unless there were others of the same caller just before it.
func (l *Log) Deny(d access.Denial) {
	l.metrics.denials.WithLabelValues(d.Status.String()).Inc()
	limits := l.others
	key, verified := keyOf(d.Caller)
	if verified {
		limits = l.verified
	}
	now := time.Now()
	counts, ok := limits.allow(key, now)
	if !ok {
		return
	}
	args := []any{"identity", d.Caller.GetIdentity(), "credential", d.Caller.GetCredential(), "remote", d.Caller.GetAddress(),
		"request", d.Request, "status", d.Status.String(), "reason", d.Message}
	if counts.same > 0 {
		args = append(args, "suppressed", counts.same)
	}
	l.log.Warn("denied", args...)
	if l.cfg.Path != "" {
		l.enqueue(queued{cluster: l.cfg.ClusterID(), denied: newDenied(d, counts), wall: now})
	}
}

func (l *Log) enqueue(lines ...queued) {
	l.mu.Lock()
	var missed uint64
	for _, line := range lines {
		size := line.bytes()
		// What follows a dropped line would come before the line that reports it.
		if l.dropped > 0 || len(l.queue) >= maxQueued || l.size+size > maxQueuedBytes {
			l.dropped++
			missed++
			continue
		}
		l.queue, l.size = append(l.queue, line), l.size+size
	}
	l.mu.Unlock()
	l.metrics.dropped.Add(float64(missed))
	signal(l.wake)
}

// take returns what is queued, and how many lines were dropped after it.
func (l *Log) take() (lines []queued, dropped uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines, dropped = l.queue, l.dropped
	l.queue, l.size, l.dropped = nil, 0, 0
	return lines, dropped
}

// Reopen makes the writer open the path again, because the file was renamed. The writer also notices that by itself,
// within a second.
func (l *Log) Reopen() { signal(l.reopen) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Close writes what is queued, once, and closes the file. It returns when that is done or ctx ends.
func (l *Log) Close(ctx context.Context) error {
	l.stop()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the audit log was not written completely: %w", ctx.Err())
	}
}
