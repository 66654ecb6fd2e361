package otelquorumlock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/quorumlock/quorumlock/client"
)

// scope is the name of the instrumentation scope.
const scope = "github.com/quorumlock/quorumlock/client/otelquorumlock"

// Attributes of spans and metrics.
const (
	namesKey   = attribute.Key("quorumlock.lock.names")
	tokenKey   = attribute.Key("quorumlock.token")
	outcomeKey = attribute.Key("quorumlock.outcome")
)

// Option configures Hooks.
type Option func(*providers)

type providers struct {
	tracers trace.TracerProvider
	meters  metric.MeterProvider
}

// WithTracerProvider sets the provider of the tracer. The default is the global one.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(o *providers) { o.tracers = p }
}

// WithMeterProvider sets the provider of the meter. The default is the global one.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(o *providers) { o.meters = p }
}

// Hooks returns hooks that report to OpenTelemetry. It returns the errors of the meter.
func Hooks(opts ...Option) (client.Hooks, error) {
	p := providers{otel.GetTracerProvider(), otel.GetMeterProvider()}
	for _, opt := range opts {
		opt(&p)
	}
	o := observer{tracer: p.tracers.Tracer(scope)}
	if err := o.create(p.meters.Meter(scope)); err != nil {
		return client.Hooks{}, fmt.Errorf("create the metrics: %w", err)
	}
	return client.Hooks{Acquire: o.acquire, HoldEnded: o.holdEnded}, nil
}

// observer has the instruments.
type observer struct {
	tracer         trace.Tracer
	acquires, held metric.Float64Histogram
	lost           metric.Int64Counter
}

// buckets are the limits of the histograms' buckets, in seconds: from a grant without waiting to a hold of an hour.
var buckets = metric.WithExplicitBucketBoundaries(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600)

// create creates the metrics.
func (o *observer) create(m metric.Meter) error {
	var errs [3]error
	o.acquires, errs[0] = m.Float64Histogram("quorumlock.acquire.duration", metric.WithUnit("s"), buckets,
		metric.WithDescription("How long calls that acquire locks took."))
	o.held, errs[1] = m.Float64Histogram("quorumlock.hold.duration", metric.WithUnit("s"), buckets,
		metric.WithDescription("How long holds lasted."))
	o.lost, errs[2] = m.Int64Counter("quorumlock.holds.lost", metric.WithUnit("{hold}"),
		metric.WithDescription("Holds that were lost before they were released."))
	return errors.Join(errs[:]...)
}

// acquire is client.Hooks.Acquire.
func (o *observer) acquire(ctx context.Context, locks []string) (context.Context, func(*client.Hold, error)) {
	began := time.Now()
	ctx, span := o.tracer.Start(ctx, "quorumlock.acquire", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(namesKey.StringSlice(locks)))
	return ctx, func(hold *client.Hold, err error) {
		if hold != nil {
			span.SetAttributes(tokenOf(hold.Token()))
		}
		end(span, err)
		o.acquires.Record(ctx, time.Since(began).Seconds(), outcomeOf(err))
	}
}

// holdEnded is client.Hooks.HoldEnded.
func (o *observer) holdEnded(e client.HoldEnd) {
	lost := e.Reason
	if errors.Is(lost, client.ErrReleased) {
		lost = nil
	}
	_, span := o.tracer.Start(e.Context, "quorumlock.hold", trace.WithTimestamp(time.Now().Add(-e.Held)),
		trace.WithAttributes(namesKey.StringSlice(e.Locks), tokenOf(e.Token)))
	end(span, lost)
	o.held.Record(e.Context, e.Held.Seconds(), outcomeOf(lost))
	if lost != nil {
		o.lost.Add(e.Context, 1, outcomeOf(lost))
	}
}

// tokenOf returns the attribute of a token. OpenTelemetry has no unsigned integers; tokens are below 2^63.
func tokenOf(token uint64) attribute.KeyValue {
	return tokenKey.Int64(int64(min(token, math.MaxInt64)))
}

// end ends a span with its error.
func end(span trace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, outcome(err))
	}
	span.SetAttributes(outcomeKey.String(outcome(err)))
	span.End()
}

// outcomes are the words for errors. Since an error may match several sentinels, the first match counts.
var outcomes = []struct {
	err  error
	word string
}{
	{client.ErrNotAcquired, "not_acquired"},
	{client.ErrTimeout, "timeout"},
	{client.ErrCancelled, "cancelled"},
	{context.Canceled, "cancelled"},
	{context.DeadlineExceeded, "timeout"},
	{client.ErrDeadlock, "deadlock"},
	{client.ErrForced, "forced"},
	{client.ErrHoldExpired, "hold_expired"},
	{client.ErrExpired, "session_expired"},
	{client.ErrRolledBack, "session_rolled_back"},
	{client.ErrClosed, "closed"},
	{client.ErrSessionLost, "session_lost"},
	{client.ErrUncertain, "uncertain"},
	{client.ErrUnavailable, "unavailable"},
	{client.ErrNotLeader, "unavailable"},
	{client.ErrPermissionDenied, "permission_denied"},
	{client.ErrResourceExhausted, "resource_exhausted"},
	{client.ErrInvalidArgument, "invalid_argument"},
}

// outcome returns a word for an error; nil is ok.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			return o.word
		}
	}
	return "error"
}

func outcomeOf(err error) metric.MeasurementOption {
	return metric.WithAttributes(outcomeKey.String(outcome(err)))
}
