package client

import (
	"context"
	"errors"
)

// during calls fn while the hold is held, and then releases it, also if fn panics. The
// ctx of fn ends with ctx and with the hold. If the hold was lost meanwhile the error
// matches the reason as well, whatever fn returned.
func (h *Hold) during(ctx context.Context, fn func(ctx context.Context, token uint64) error) (err error) {
	inner, cancel := context.WithCancelCause(h.Context())
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer func() {
		stop()
		cancel(nil)
		// Not ctx: a caller that gave up wants the lock released all the more. It ends
		// with the session at the latest.
		if uerr := h.Unlock(context.WithoutCancel(ctx)); uerr != nil {
			err = errors.Join(err, uerr)
		}
	}()
	return fn(&holdContext{inner, h}, h.Token())
}
