//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// doneSuffix is appended to the name of a job's lock. It names the lock that records that the job is done, as
// in the SDK.
const doneSuffix = "/done"

// doneName returns the name of the lock that records that the job is done.
func (j *task) doneName() string { return j.opts.claim.names()[0] + doneSuffix }

// isDone reports whether the job was done before.
func (j *task) isDone() (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), j.opts.open)
	defer cancel()
	lock, err := j.svc.GetLock(ctx, &wire.GetLockRequest{Name: j.doneName(), QueueLimit: 1})
	if errors.Is(err, client.ErrNotFound) {
		return false, nil
	}
	return err == nil && len(lock.GetHolders()) > 0, err
}

// record records that the job is done, while its lock is held.
func (j *task) record(h held) error {
	ctx, cancel := context.WithTimeout(h.hold.Context(), max(0, h.hold.Remaining()))
	defer cancel()
	_, err := j.svc.AcquireLease(ctx, leaseRequest{
		claim: claim{
			locks: []client.LockSpec{{Name: j.doneName(), Mode: client.Exclusive}},
			value: []byte(fmt.Sprintf("token %d of session %d", h.hold.Token(), h.session.ID())),
		},
		secret:  newSecret(),
		session: client.SessionOptions{TTL: j.opts.keep.Truncate(time.Millisecond), Name: "once"},
	})
	if errors.Is(err, client.ErrNotAcquired) {
		return nil // recorded by an earlier, slow run
	}
	return err
}
