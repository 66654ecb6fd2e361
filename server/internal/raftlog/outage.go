package raftlog

import (
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// The pause between two lines about what lasts grows from firstRepeat to lastRepeat.
const (
	firstRepeat = time.Minute
	lastRepeat  = time.Hour
)

// lasting is something that lasts: when it began, how often it was noticed, and when it is logged again.
type lasting struct {
	since  time.Time
	count  int
	pause  time.Duration
	next   time.Time
	logged bool
}

func newLasting() *lasting {
	now := time.Now()
	return &lasting{since: now, pause: firstRepeat, next: now.Add(firstRepeat)}
}

// repeat counts, and reports whether it is time for a line.
func (l *lasting) repeat() bool {
	l.count++
	now := time.Now()
	if now.Before(l.next) {
		return false
	}
	l.logged = true
	l.pause = min(2*l.pause, lastRepeat)
	l.next = now.Add(l.pause)
	return true
}

// age returns for how long it has lasted.
func (l *lasting) age() string { return time.Since(l.since).Round(time.Millisecond).String() }

// outages are the nodes that do not answer this one, the leader. The beginning of an outage is logged by autopilot,
// which knows what it means for the cluster. outages logs how long it lasts. It is safe for concurrent use.
type outages struct {
	log hclog.Logger

	mu     sync.Mutex // guards the field below; not held while logging
	silent map[string]*lasting
}

func newOutages(log hclog.Logger) *outages { return &outages{log: log, silent: map[string]*lasting{}} }

// failed counts an attempt to reach a node. An empty name is ignored.
func (o *outages) failed(node string, err error) {
	if node == "" {
		return
	}
	o.mu.Lock()
	outage := o.silent[node]
	if outage == nil {
		outage = newLasting()
		o.silent[node] = outage
	}
	due := outage.repeat()
	attempts, silence := outage.count, outage.age()
	o.mu.Unlock()
	if due {
		o.log.Warn("a node still does not answer", "node", node, "silence", silence, "attempts", attempts, "error", err)
	}
}

// ended records that a node answers.
func (o *outages) ended(node string) {
	outage := o.remove(node)
	if outage == nil {
		return
	}
	level := hclog.Debug
	if outage.logged {
		level = hclog.Info
	}
	o.log.Log(level, "a node answers again", "node", node, "silence", outage.age(), "attempts", outage.count)
}

// removed forgets a node.
func (o *outages) removed(node string) { o.remove(node) }

func (o *outages) remove(node string) *lasting {
	o.mu.Lock()
	defer o.mu.Unlock()
	outage := o.silent[node]
	delete(o.silent, node)
	return outage
}

// forget forgets all nodes.
func (o *outages) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.silent)
}
