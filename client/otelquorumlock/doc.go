// Package otelquorumlock reports what a Quorumlock client does to OpenTelemetry.
//
// It is a module of its own, so only programs that import it depend on OpenTelemetry:
//
//	hooks, err := otelquorumlock.Hooks()
//	if err != nil {
//		return err
//	}
//	cfg := client.FromEnv()
//	cfg.Hooks = hooks
//	c, err := client.New(cfg)
//
// Spans:
//
//	quorumlock.acquire  a call that acquires locks, from its start to its outcome
//	quorumlock.hold     a hold, from the grant to its end; a child of its acquire
//
// Both have the attributes quorumlock.lock.names and, once the locks are granted, quorumlock.token. A hold's span
// has an error status if the hold was lost. The context of a hold carries the span of its acquire, so the spans
// of the work under the lock become its children.
//
// Metrics, whose times are in seconds:
//
//	quorumlock.acquire.duration  histogram: how long calls took, by quorumlock.outcome
//	quorumlock.hold.duration     histogram: how long holds lasted, by quorumlock.outcome
//	quorumlock.holds.lost        counter: holds that were lost, by quorumlock.outcome
//
// quorumlock.outcome is "ok" or a short word for the error. Metrics do not have the names of locks, since there
// may be any number of them.
package otelquorumlock
