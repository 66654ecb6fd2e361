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

// resource is what a lock protects: a number that is read, raised by one and written
// back. One copy of it looks at tokens, the other one believes everybody.
type resource struct {
	name  string
	guard fence.Guard

	mu                   sync.Mutex // guards what follows
	fenced, unfenced     int
	fencedIn, unfencedIn int // writes that were let in
	stale                int
}

// read announces the token, so that nobody with a lower one writes afterwards what it has
// read before.
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

// FencedClients is how many there are in the part.
const FencedClients = 3

// FencedClient names one of them: each is a process that can be held back alone.
func FencedClient(i int) string { return fmt.Sprint(fenced, "/", i) }

// Fenced is clients that read, change and write back under a lock. One that is held back
// in between, beyond its TTL, writes what is outdated: the copy that looks at tokens must
// refuse that, and the other one shows that there was something to refuse.
var Fenced = Part{fenced, func(r *Run) { r.protect(&resource{name: lock(fenced, 0)}) }}

// protect starts the clients of one resource.
func (r *Run) protect(d *resource) {
	for i := range FencedClients {
		c := r.client(FencedClient(i))
		r.startIn(FencedClient(i), fenced, func(a *actor) { a.sessions(c, func(s *client.Session) error { return a.change(s, d) }) })
	}
	r.atTheEnd(func() {
		if d.fenced != d.fencedIn {
			r.fault("%s: %d writes with a token were let in, and it reads %d", d.name, d.fencedIn, d.fenced)
		}
		r.counts(Counts{Writes: d.fencedIn, StaleWrites: d.stale, LostUpdates: d.unfencedIn - d.unfenced})
	})
}

// lookToWrite is how long it may take from the last look at a hold to the write. A client
// that runs gives up earlier than the cluster by more than that.
const lookToWrite = 10 * time.Millisecond

// change reads, and writes one more, if it holds the lock still as far as it knows.
func (a *actor) change(s *client.Session, d *resource) error {
	h, err := a.lock(a.ctx, s, d.name)
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
