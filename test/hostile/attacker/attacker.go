package attacker

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorumlock/quorumlock/transport"
)

// Node contains the addresses of one node. The peer address may be empty.
type Node struct {
	Client, Peer, HTTP, Redis string
}

// Plan describes an attack. The first node is the leader.
type Plan struct {
	Attack string
	Nodes  []Node
	// Connections is how many connections to keep open, Rate the total number of requests (or, for
	// handshakes, connections) per second.
	Connections, Rate int
	// Size scales what an attack prepares, such as the length of a chain of waits.
	Size int
	// Identity is a client's certificate; the zero value means plaintext.
	Identity transport.TLSFiles
}

// Report counts what an attack has achieved so far.
type Report struct {
	// Ready is set once everything is prepared: the attack itself runs from then on.
	Ready bool
	// Open is the number of open connections, Opened the total number so far, Closed the number closed by
	// nodes.
	Open, Opened, Closed int64
	// Sent and Answered count requests. Granted, Queued and Refused count answers; refused are
	// RESOURCE_EXHAUSTED, UNAVAILABLE and INVALID_ARGUMENT.
	Sent, Answered, Granted, Queued, Refused int64
	// BytesSent and BytesRead count payload. Unread is the number of bytes that nodes have sent and that wait
	// unread in this process's sockets.
	BytesSent, BytesRead, Unread int64
	// Ports counts the open connections by kind of port, for handshakes.
	Ports map[string]int64
	// CPU is the processor time used, in seconds.
	CPU float64
	// Errors is a sample of the errors.
	Errors []string
}

// attacks are the attacks by name, for Plan.Attack.
var attacks = map[string]func(*attack, context.Context) error{
	"names":               (*attack).names,
	"handshakes":          (*attack).handshakes,
	"unread-lists":        (*attack).unreadLists,
	"unread-lists-http":   (*attack).unreadListsHTTP,
	"unread-watches":      (*attack).unreadWatches,
	"unread-watches-http": (*attack).unreadWatchesHTTP,
	"slow-readers":        (*attack).slowReaders,
	"unfinished-frames":   (*attack).unfinishedFrames,
	"unfinished-bodies":   (*attack).unfinishedBodies,
	"flood-try":           (*attack).floodTry,
	"flood-list":          (*attack).floodList,
	"flood-status":        (*attack).floodStatus,
	"flood-deadlocks":     (*attack).floodDeadlocks,
	"deadlock-search":     (*attack).deadlockSearch,
	"bad-names":           (*attack).badNames,
	"sessions":            (*attack).openSessions,
	"watches":             (*attack).openWatches,
	"connections":         (*attack).openConnections,
	"values":              (*attack).largeValues,
	"everything":          (*attack).everything,
	"redis-new":           (*attack).redisNew,
	"redis-poll":          (*attack).redisPoll,
	"redis-scripts":       (*attack).redisScripts,
	"redis-reads":         (*attack).redisReads,
	"redis-tiny":          (*attack).redisTiny,
	"redis-unread":        (*attack).redisUnread,
	"redis-unfinished":    (*attack).redisUnfinished,
	"redis-waits":         (*attack).redisWaits,
	"redis-connections":   (*attack).redisConnections,
	"redis-everything":    (*attack).redisEverything,
}

// Names returns the names of all attacks.
func Names() []string { return slices.Sorted(maps.Keys(attacks)) }

// reportInterval is how often Run reports.
const reportInterval = 200 * time.Millisecond

// Run executes the attack until ctx ends, and reports regularly and at the end. It returns an error if the
// attack could not begin. That nodes close connections is expected.
func Run(ctx context.Context, p Plan, report func(Report)) error {
	run := attacks[p.Attack]
	if run == nil {
		return fmt.Errorf("no attack is called %q: choose one of %v", p.Attack, Names())
	}
	a := &attack{plan: p, pace: newPacer(p.Rate), sockets: map[net.Conn]string{}}
	if !p.Identity.IsZero() {
		config, err := p.Identity.ClientConfig()
		if err != nil {
			return err
		}
		a.tls = config
	}
	done := make(chan error, 1)
	go func() { done <- run(a, ctx) }()
	tick := time.NewTicker(reportInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			report(a.report())
		case err := <-done:
			report(a.report())
			return err
		}
	}
}

// attack is an attack in progress.
type attack struct {
	plan  Plan
	tls   *tls.Config
	pace  *pacer
	ready atomic.Bool
	// calls counts dials, to choose a source address for each.
	calls atomic.Int64

	opened, closed, sent, answered, granted, queued, refused atomic.Int64
	bytesSent, bytesRead                                     atomic.Int64

	mu      sync.Mutex // guards the fields below
	sockets map[net.Conn]string
	errors  []string
}

func (a *attack) leader() Node { return a.plan.Nodes[0] }

const maxErrors = 8

func (a *attack) failed(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.errors) < maxErrors {
		a.errors = append(a.errors, err.Error())
	}
}

func (a *attack) report() Report {
	r := Report{
		Ready: a.ready.Load(), Opened: a.opened.Load(), Closed: a.closed.Load(), Sent: a.sent.Load(), Answered: a.answered.Load(),
		Granted: a.granted.Load(), Queued: a.queued.Load(), Refused: a.refused.Load(),
		BytesSent: a.bytesSent.Load(), BytesRead: a.bytesRead.Load(), Ports: map[string]int64{},
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for conn, port := range a.sockets {
		r.Open++
		r.Ports[port]++
		r.Unread += unread(conn)
	}
	r.Errors = slices.Clone(a.errors)
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) == nil {
		r.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
	}
	return r
}

// unread returns the number of bytes that wait in the socket.
func unread(conn net.Conn) (n int64) {
	raw, ok := conn.(*net.TCPConn)
	if !ok {
		return 0
	}
	if control, err := raw.SyscallConn(); err == nil {
		_ = control.Control(func(fd uintptr) {
			if in, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
				n = int64(in)
			}
		})
	}
	return n
}

// sources is the number of source addresses: one attacker with a few machines.
const sources = 16

// dial opens a TCP connection from one of the source addresses. buffer is the size of its receive buffer; 0
// means the default. The connection is counted until drop.
func (a *attack) dial(ctx context.Context, port, addr string, buffer int) (*net.TCPConn, error) {
	call := a.calls.Add(1)
	d := net.Dialer{
		Timeout:   5 * time.Second,
		LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 66, byte(1+call%sources))},
	}
	if buffer > 0 {
		d.Control = func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, buffer)
			})
		}
	}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	a.opened.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sockets[conn] = port
	return conn.(*net.TCPConn), nil
}

// drop closes a connection.
func (a *attack) drop(conn net.Conn) {
	_ = conn.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sockets, conn)
}

// each runs life n times concurrently. A run that ends before ctx does is restarted.
func (a *attack) each(ctx context.Context, n int, life func(ctx context.Context, i int) error) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := life(ctx, i); err != nil && ctx.Err() == nil {
					a.closed.Add(1)
					a.failed(err)
				}
				rest(ctx, 50*time.Millisecond)
			}
		})
	}
	all.Wait()
}

// rest waits for d or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// pacer admits a number of events per second, with bursts of burstTime.
type pacer struct {
	mu   sync.Mutex
	gap  time.Duration
	next time.Time
}

const burstTime = 20 * time.Millisecond

func newPacer(rate int) *pacer { return &pacer{gap: time.Second / time.Duration(max(rate, 1))} }

// ahead reports whether the next event has to wait.
func (p *pacer) ahead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next.After(time.Now())
}

// wait returns when one more event may happen, or when ctx ends.
func (p *pacer) wait(ctx context.Context) {
	p.mu.Lock()
	now := time.Now()
	if earliest := now.Add(-burstTime); p.next.Before(earliest) {
		p.next = earliest
	}
	at := p.next
	p.next = p.next.Add(p.gap)
	p.mu.Unlock()
	if ahead := at.Sub(now); ahead > 0 {
		rest(ctx, ahead)
	}
}
