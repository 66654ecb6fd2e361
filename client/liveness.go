package client

import (
	"errors"
	"runtime"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	speakAfter    = time.Minute            // ping after sending nothing to a quiet node for this long
	pingAfter     = 7 * time.Second        // ping after receiving nothing for this long from a node that owes an answer or an event
	answerTimeout = 250 * time.Millisecond // ask other nodes after a request was unanswered for this long
	silenceMax    = 5 * time.Second        // close the connection after a request was unanswered for this long, or a third of the shortest TTL
	// yields is how often the other goroutines may run before a node counts as hung: one writes the request, the runtime
	// polls the network, and one reads the answer.
	yields = 3
)

// limitSilence has silent connections given up within a third of the TTL of a session or a lease, which then outlives
// a connection that delivers nothing any more.
func (n *connector) limitSilence(ttl time.Duration) { n.silence = min(n.silence, ttl/3) }

// longestPause stays below a tenth of the shortest TTL, which is three tenths of the silence that the client bears.
func (n *connector) longestPause() time.Duration {
	return min(connectMost, n.silence*3/10) - time.Millisecond
}

// hungAfter returns how long a leader may leave a request unanswered before the client tries to reach it on another
// connection. A session with the shortest TTL has enough time for that, for opening a tunnel, and, if that fails, for
// its user to end its work safely.
func (n *connector) hungAfter() time.Duration { return max(answerTimeout, n.silence/4) }

// checkConnection pings the connected node, or gives it up, and looks for a leader if there is a reason.
func (n *connector) checkConnection(now time.Duration) {
	cn := n.client.conn
	if n.client.halted {
		return
	}
	if cn != nil && cn.err == nil {
		oldest := n.client.oldest()
		if n.quiet(cn) && now >= cn.pingAt() || now >= n.doubtAt(cn, oldest) {
			n.ping(cn)
		}
		if now >= n.silentAt(cn, oldest) {
			cn.fail(errors.New("the node does not answer"))
			return
		}
	}
	n.client.search.seek(now)
}

// quiet reports whether the client waits for the node, but for nothing that is due soon. Then only a ping
// shows whether the node is alive.
func (n *connector) quiet(cn *conn) bool {
	return cn.leads && (len(n.client.watching) > 0 || n.client.flight.n > 0) && n.client.oldest() == nil
}

// pingAt returns when a quiet connection needs a ping. The ping checks that the node is alive, and shows
// the node that the client is, since nodes close connections that are silent for long.
func (cn *conn) pingAt() time.Duration { return min(cn.receivedAt+pingAfter, cn.spoke+speakAfter) }

// doubtAt returns when a node with an unanswered request is pinged. A node that answers the ping is alive, and
// the request waits for its disk or for a majority. The connection is kept then: on another one the sessions
// would have to attach again and wait as long. doubtAt returns never if no request is unanswered, or if a
// ping is.
func (n *connector) doubtAt(cn *conn, oldest *call) time.Duration {
	if oldest == nil || cn.pinged > cn.receivedAt {
		return never
	}
	return max(cn.receivedAt, oldest.sentAt) + max(answerTimeout, n.silence)/2
}

// ping sends a request that any node answers immediately.
func (n *connector) ping(cn *conn) {
	cn.pinged = n.client.clock.Now()
	k := &call{kind: kindPing}
	k.request.Body = &wire.Request_GetLock{GetLock: &wire.GetLockRequest{Name: "ping", QueueLimit: 1, Stale: true}}
	n.client.submit(k)
}

// silentAt returns when the connection is closed unless a frame arrives: when the oldest request has been
// unanswered for long, and a ping for half as long. It returns never if no ping is unanswered: this process may
// have been paused and not have read the answers yet.
func (n *connector) silentAt(cn *conn, oldest *call) time.Duration {
	if oldest == nil || cn.pinged <= cn.receivedAt {
		return never
	}
	silence := max(answerTimeout, n.silence)
	return max(oldest.sentAt+silence, cn.pinged+silence/2)
}

// oldest returns the request that has been unanswered the longest. It ignores slow ones: a node that joins has
// to catch up first, and a lease may have to wait for its grant.
func (t *requestTable) oldest() *call {
	k := t.flight.head
	for k != nil && k.kind.policy().slow {
		k = k.links[lane].next
	}
	return k
}

// awaited reports whether a request is in flight that only a leader answers. A node that leads no more may not answer it.
func (t *requestTable) awaited() bool {
	for k := t.flight.head; k != nil; k = k.links[lane].next {
		if !k.stale && k.kind != kindPing {
			return true
		}
	}
	return false
}

// hangs reports whether a request has been unanswered for long.
func (t *requestTable) hangs(now time.Duration) bool {
	oldest := t.oldest()
	return oldest != nil && now-oldest.sentAt >= answerTimeout
}

// stillHangs is hangs after the goroutines that are ready have run. If this process has more to do than it has
// processors, the request may not be written yet, or its answer not be read. Such a process would otherwise ask other
// nodes almost all the time.
func (t *requestTable) stillHangs() bool {
	for range yields {
		runtime.Gosched()
		t.client.mu.Lock()
		hangs := t.hangs(t.client.clock.Now())
		t.client.mu.Unlock()
		if !hangs {
			return false
		}
	}
	return true
}
