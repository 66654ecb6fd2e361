package auditlog

import (
	"time"

	"github.com/quorumlock/quorumlock/internal/ratelog"
)

const (
	// checkInterval is how often the writer checks whether the file was renamed, removed or truncated.
	checkInterval = time.Second
	// retryInterval is how long the writer waits after a failed write.
	retryInterval = time.Second
)

// writer writes the queued lines to the file. It is a single goroutine.
type writer struct {
	*Log
	file     *file
	at       position
	repeated *ratelog.Repeated
	// lost is set if a line could not be written before the end. What follows it must not be written either: the last
	// line says where to continue.
	lost bool
}

// run writes until the log is closed.
func (w *writer) run() {
	defer close(w.done)
	w.note(note{head: head{Kind: kindOpened}}, time.Now())
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for w.closing.Err() == nil {
		w.flush()
		select {
		case <-w.wake:
		case <-w.reopen:
			w.open()
		case <-tick.C:
			w.check()
		case <-w.closing.Done():
		}
	}
	w.flush()
	if err := w.file.close(); err != nil {
		w.failed(err)
	}
}

// flush writes what is queued. It does not return before that, unless the log is closed and the disk fails.
func (w *writer) flush() {
	lines, dropped := w.take()
	for _, line := range lines {
		w.enter(line.cluster)
		switch {
		case line.record != nil:
			w.act(line)
		case line.local != nil:
			w.note(note{head: head{Kind: kindLocal}, Act: line.local}, line.wall)
		default:
			w.note(note{head: head{Kind: kindDenied}, denied: line.denied}, line.wall)
		}
	}
	if dropped > 0 {
		w.note(note{head: head{Kind: kindDropped}, Count: dropped}, time.Now())
	}
}

// enter starts from the beginning if the node has become a member of another cluster.
func (w *writer) enter(cluster string) {
	if cluster != "" && cluster != w.at.cluster {
		w.at = position{cluster: cluster}
	}
}

// act writes a record, unless the file has it, behind a line about those that are missing.
func (w *writer) act(line queued) {
	r := line.record
	if r.Id <= w.at.id {
		return
	}
	next := position{w.at.cluster, r.Id, w.at.revision}
	if r.Imported == nil {
		next.revision = r.Revision
	}
	if r.Id > w.at.id+1 {
		w.note(note{head: head{Kind: kindMissing}, BeforeID: r.Id, BeforeRevision: next.revision}, line.wall)
	}
	text, err := actLine(w.head(kindAct), r)
	if err != nil {
		w.failed(err)
		return
	}
	w.write(text, kindAct)
	w.at = next
}

func (w *writer) head(kind string) head {
	return head{Kind: kind, ClusterID: w.at.cluster, NodeID: w.cfg.NodeID}
}

// note writes a line that is no record.
func (w *writer) note(n note, wall time.Time) {
	n.head = w.head(n.Kind)
	n.WallUnixMs, n.AfterID, n.AfterRevision = wall.UnixMilli(), w.at.id, w.at.revision
	w.write(noteLine(n), n.Kind)
}

// write writes a line, with as many attempts as it takes. Meanwhile the queue fills. Once the log is closed, it tries
// only once.
func (w *writer) write(line []byte, kind string) {
	for rest := line; !w.lost; {
		n, err := w.file.write(rest)
		if err == nil {
			w.metrics.lines.WithLabelValues(kind).Inc()
			return
		}
		w.failed(err)
		rest = rest[n:]
		w.lost = !w.again()
		if moved, _ := w.file.replaced(); !w.lost && moved && w.replace() {
			rest = line
		}
	}
}

// again waits before the next attempt. It returns false if the log is closed.
func (w *writer) again() bool {
	pause := time.NewTimer(retryInterval)
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-w.closing.Done():
		return false
	}
}

// check opens the path again if it names another file.
func (w *writer) check() {
	switch moved, truncated := w.file.replaced(); {
	case moved:
		w.open()
	case truncated:
		w.note(note{head: head{Kind: kindOpened}}, time.Now())
	}
}

// open opens the path again. The first line of the new file says where the old one ended.
func (w *writer) open() {
	if w.replace() {
		w.note(note{head: head{Kind: kindOpened}}, time.Now())
	}
}

// replace opens the path again. If it cannot, it keeps the old file.
func (w *writer) replace() bool {
	next, _, err := openFile(w.cfg.Path)
	if err != nil {
		w.failed(err)
		return false
	}
	if err := w.file.close(); err != nil {
		w.failed(err)
	}
	w.file = next
	return true
}

// failed logs a failure. The node continues.
func (w *writer) failed(err error) {
	w.metrics.errors.Inc()
	w.repeated.Error("the audit log cannot be written: records and denials are dropped once its queue is full", "file", w.cfg.Path, "error", err)
}
