package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/scripts/demo"
)

// worker refunds orders, each exactly once, concurrently with other workers.
type worker struct {
	number  int
	client  *client.Client
	session *client.Session // nil before the first and after a loss
	ttl     time.Duration
	ledger  demo.Ledger
	report  func(demo.Event)
	// beforeWrite runs between the check and the write.
	beforeWrite func(demo.Request, uint64)
}

// answer handles one request until it is answered, with as many sessions as needed.
func (w *worker) answer(ctx context.Context, request demo.Request) error {
	for {
		if err := w.open(ctx); err != nil {
			return err
		}
		outcome, err := w.refund(ctx, request)
		switch {
		case err == nil:
			w.tell(outcome, request, nil)
			return nil
		case errors.Is(err, demo.ErrStaleToken):
			w.tell(demo.Stale, request, err) // another worker has the order by now: check again
		case errors.Is(err, client.ErrSessionLost):
			w.tell(demo.Lost, request, err)
		default:
			return err
		}
	}
}

// refund handles one request under the order's lock.
func (w *worker) refund(ctx context.Context, request demo.Request) (outcome demo.Kind, err error) {
	err = w.session.Do(ctx, "orders/"+request.Order, func(ctx context.Context, token uint64) error {
		access := demo.Access{Order: request.Order, Token: token, Worker: w.number}
		w.report(demo.Event{Kind: demo.Granted, Line: request.Line, Order: request.Order, Token: token})
		order, err := w.ledger.Check(ctx, access)
		if err != nil {
			return because(ctx, err)
		}
		if order.Refunded {
			outcome = already(order, request)
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// That was the last check of the lock. The process can be stopped right here for longer than its
		// session's TTL, and no check on this side of the network can rule that out. From here on only the
		// token protects the order. A write that has begun is better completed than left in doubt, so it has
		// its own deadline.
		w.beforeWrite(request, token)
		write, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = w.ledger.Refund(write, demo.Refund{Access: access, Key: request.Key, Cents: request.Cents})
		if err == nil {
			outcome = demo.Refunded
		}
		return err
	})
	if outcome != "" {
		return outcome, nil // the work is done; it does not matter what happened to the lock afterwards
	}
	return "", err
}

// already distinguishes a retry from a second submission.
func already(order demo.Order, request demo.Request) demo.Kind {
	if order.Key == request.Key {
		return demo.Retried
	}
	return demo.Duplicate
}

// because prefers the reason for which the lock was lost over the error of a cancelled call.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// open ensures that there is a live session. One session serves all locks of a process.
func (w *worker) open(ctx context.Context) error {
	if w.session != nil && w.session.Err() == nil {
		return nil
	}
	session, err := w.client.NewSession(ctx, client.SessionOptions{TTL: w.ttl, Name: "refund-worker"})
	if err != nil {
		return err
	}
	w.session = session
	return nil
}

func (w *worker) tell(kind demo.Kind, request demo.Request, why error) {
	event := demo.Event{Kind: kind, Line: request.Line, Order: request.Order}
	if why != nil {
		event.Reason = strings.ReplaceAll(why.Error(), "\n", "; ")
	}
	w.report(event)
}
