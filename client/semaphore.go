package client

import (
	"context"
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Semaphore limits how many holders there are at a time, for example the number of workers or connections
// across all machines. Requests are granted in arrival order, even if a smaller request behind would fit.
//
// All users must give the same limit; a different one is refused with ErrMismatch while anybody holds or
// waits for a permit. To change the limit at run time, call [admin.Client.Resize] and give programs the new
// limit: requests with the old one are refused from then on.
//
// A Semaphore is a name, a limit and options and has no state: create any number of them for one semaphore,
// and use each from any number of goroutines. Permits are lost with the session, like any other hold. Their
// token does not fence, since others hold permits too.
type Semaphore struct {
	session owner
	name    string
	limit   uint64
	opts    []LockAllOption
}

// Semaphore returns a semaphore with limit permits. The options apply to every call.
func (s *Session) Semaphore(name string, limit uint64, opts ...LockAllOption) *Semaphore {
	return &Semaphore{s, name, limit, opts}
}

// Name returns the semaphore's name.
func (l *Semaphore) Name() string { return l.name }

// Limit returns the number of permits that this program uses in its requests.
func (l *Semaphore) Limit() uint64 { return l.limit }

// Acquire waits for n permits, all in one hold. It returns ErrInvalidArgument unless n is between 1 and the
// limit. With [WithTry] it acquires them only if that many are free and nobody waits. In all other respects
// it is like [Session.Lock].
func (l *Semaphore) Acquire(ctx context.Context, n uint64, opts ...LockAllOption) (*Hold, error) {
	specs, err := l.permits(n)
	if err != nil {
		return nil, err
	}
	return l.session.LockAll(ctx, specs, slices.Concat(l.opts, opts)...)
}

// permits returns the request for n permits. It refuses a limit of 0, which would request an ordinary lock,
// and n = 0, which would request one permit.
func (l *Semaphore) permits(n uint64) ([]LockSpec, error) {
	switch {
	case l.limit == 0:
		return nil, invalid("semaphore %s has a limit of 0: give it 1 or more", wire.Printable(l.name))
	case n == 0 || n > l.limit:
		return nil, invalid("%d permits of semaphore %s: ask for 1 to %d", n, wire.Printable(l.name), l.limit)
	}
	return []LockSpec{{Name: l.name, Permits: n, Limit: l.limit}}, nil
}
