package workload

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/client/fence"
)

const fenced = FrailClient + "/fenced"

// resource is what a lock protects: a number that is read, incremented and written back. One copy of it
// checks tokens, the other accepts every write.
type resource struct {
	name  string
	guard fence.Guard

	mu                   sync.Mutex // guards the fields below
	fenced, unfenced     int
	fencedIn, unfencedIn int // accepted writes
	stale                int
}

// read announces the token, so that no holder of a smaller one can write afterwards.
func (d *resource) read(token uint64) (fenced, unfenced int, err error) {
	err = d.guard.Do(d.name, token, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		fenced = d.fenced
		return nil
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	return fenced, d.unfenced, err
}

func (d *resource) write(token uint64, fenced, unfenced int) error {
	err := d.guard.Do(d.name, token, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.fenced, d.fencedIn = fenced, d.fencedIn+1
		return nil
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unfenced, d.unfencedIn = unfenced, d.unfencedIn+1
	if errors.Is(err, fence.ErrStaleToken) {
		d.stale++
		return nil
	}
	return err
}

// FencedClients is the number of clients in the part.
const FencedClients = 3

// FencedClient returns the name of one of them. Each is a process that can be stalled separately.
func FencedClient(i int) string { return fmt.Sprint(fenced, "/", i) }

// Fenced are clients that read, change and write back under a lock. One that is stalled in between, beyond
// its TTL, writes an outdated value: the copy that checks tokens must reject it, and the other one shows that
// such writes happened.
var Fenced = Part{fenced, func(r *Run) { r.protect(&resource{name: lock(fenced, 0)}) }}

// protect starts the clients of one resource.
func (r *Run) protect(d *resource) {
	for i := range FencedClients {
		c := r.client(FencedClient(i))
		r.startIn(FencedClient(i), fenced, func(a *actor) { a.sessions(c, func(s *client.Session) error { return a.change(s, d) }) })
	}
	r.checkAtTheEnd(d)
}

// checkAtTheEnd compares what a resource contains with the writes that it accepted.
func (r *Run) checkAtTheEnd(d *resource) {
	r.atTheEnd(func() {
		if d.fenced != d.fencedIn {
			r.fault("%s: %d writes with a token were let in, and it reads %d", d.name, d.fencedIn, d.fenced)
		}
		r.counts(Counts{Writes: d.fencedIn, StaleWrites: d.stale, LostUpdates: d.unfencedIn - d.unfenced})
	})
}

// lookToWrite bounds the time from the last check of a hold to the write. A running client's deadline
// precedes the cluster's by more than that.
const lookToWrite = 10 * time.Millisecond

// change reads the resource, and writes it incremented if it still holds the lock as far as it knows.
func (a *actor) change(s *client.Session, d *resource, opts ...client.LockOption) error {
	h, err := a.lock(a.ctx, s, d.name, opts...)
	if err != nil {
		return err
	}
	fenced, unfenced, err := d.read(h.Token())
	if errors.Is(err, fence.ErrStaleToken) {
		return h.release()
	}
	if err != nil {
		return err
	}
	h.keep(a.some(1))
	if h.Context().Err() == nil {
		a.pause(a.between(0, lookToWrite), nil)
		a.env.Stall(a.client)
		if err := d.write(h.Token(), fenced+1, unfenced+1); err != nil {
			return err
		}
	}
	return h.release()
}
