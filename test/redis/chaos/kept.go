package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/test/process"
)

// keptTTL is longer than any fault. It is also long enough for records of what remains of it.
const keptTTL = 10 * time.Minute

// Keep acquires a key that must outlast a fault. The function that it returns verifies after the fault that the key is
// still held, and releases it.
func (l *Load) Keep() (verify func()) {
	var name string
	var m *redsync.Mutex
	var asked time.Duration
	l.cluster.Await("a key to keep", process.WaitTimeout, func(ctx context.Context) error {
		l.keeps++ // a key whose acquire gets no reply may stay held
		name = fmt.Sprint(prefix, "kept/", l.keeps)
		m, asked = l.mutex(l.kept, name, keptTTL), l.log.Now()
		return m.TryLockContext(ctx)
	})
	booked := l.log.Grant(history.Hold{Client: "kept", Value: m.Value(), Locks: history.Exclusive(name), Asked: asked})
	booked.LastsUntil(l.log.Now() + time.Until(m.Until()))
	return func() {
		l.cluster.Await("another client is refused", process.WaitTimeout, func(ctx context.Context) error {
			err := l.mutex(l.kept, name, keptTTL).TryLockContext(ctx)
			if err == nil {
				l.log.Fault("%s was granted to another client through a fault", name)
			}
			if _, taken := errors.AsType[*redsync.ErrTaken](err); taken {
				return nil
			}
			return err
		})
		booked.End()
		l.cluster.Await("the key is released", process.WaitTimeout, func(ctx context.Context) error {
			ok, err := m.UnlockContext(ctx)
			if errors.Is(err, redsync.ErrLockAlreadyExpired) {
				l.log.Fault("%s was lost through a fault", name)
				return nil
			}
			if !ok {
				return fmt.Errorf("released: %v: %w", ok, err)
			}
			return nil
		})
		booked.Acknowledge()
		l.count(func(did *Counts) { did.Kept++ })
	}
}
