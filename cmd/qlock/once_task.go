//go:build unix

package main

import "context"

// begin reports whether the command must run. For once, it must not if it was done before, and the record is prepared
// before it runs.
func (j *task) begin(h held) (bool, error) {
	if j.opts.keep == 0 {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(h.hold.Context(), j.opts.open)
	defer cancel()
	run, err := h.session.Begin(ctx, h.hold, j.opts.claim.names()[0], j.opts.keep)
	if run == nil || err != nil {
		return false, j.wrap(err)
	}
	j.once = run
	return true, nil
}

// record records that the command has succeeded, while its lock is held.
func (j *task) record(h held) error {
	if j.once == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(h.hold.Context(), max(0, h.hold.Remaining()))
	defer cancel()
	return j.once.Record(ctx)
}
