package otelquorumlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/client/otelquorumlock"
)

// observed has hooks that report to memory.
type observed struct {
	t     *testing.T
	hooks client.Hooks
	spans *tracetest.SpanRecorder
	meter *metric.ManualReader
}

func observe(t *testing.T) *observed {
	o := &observed{t: t, spans: tracetest.NewSpanRecorder(), meter: metric.NewManualReader()}
	var err error
	o.hooks, err = otelquorumlock.Hooks(
		otelquorumlock.WithTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(o.spans))),
		otelquorumlock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(o.meter))))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// counts returns, for each metric, how many measurements have which outcome.
func (o *observed) counts() map[string]map[string]uint64 {
	var all metricdata.ResourceMetrics
	if err := o.meter.Collect(context.Background(), &all); err != nil {
		o.t.Fatal(err)
	}
	counts := map[string]map[string]uint64{}
	add := func(name string, attributes attribute.Set, n uint64) {
		outcome, _ := attributes.Value("quorumlock.outcome")
		if counts[name] == nil {
			counts[name] = map[string]uint64{}
		}
		counts[name][outcome.AsString()] += n
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, p.Count)
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, uint64(p.Value))
				}
			default:
				o.t.Errorf("%s has unexpected data: %T", m.Name, data)
			}
		}
	}
	return counts
}

// TestSpansOfAHold checks the spans of an acquire and its hold: names, attributes, times and parents.
func TestSpansOfAHold(t *testing.T) {
	o := observe(t)
	ctx, done := o.hooks.Acquire(t.Context(), []string{"a", "b"})
	done(nil, nil)
	o.hooks.HoldEnded(client.HoldEnd{Context: ctx, Locks: []string{"a", "b"}, Token: 7, Held: time.Minute, Reason: client.ErrReleased})

	spans := o.spans.Ended()
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	acquire, hold := spans[0], spans[1]
	if acquire.Name() != "quorumlock.acquire" || hold.Name() != "quorumlock.hold" {
		t.Errorf("the spans are %q and %q", acquire.Name(), hold.Name())
	}
	if hold.Parent().SpanID() != acquire.SpanContext().SpanID() {
		t.Error("the span of the hold is no child of its acquire's")
	}
	if held := hold.EndTime().Sub(hold.StartTime()); held < time.Minute || held > time.Minute+10*time.Second {
		t.Errorf("the hold lasted %v", held)
	}
	attributes := attribute.NewSet(hold.Attributes()...)
	if names, _ := attributes.Value("quorumlock.lock.names"); len(names.AsStringSlice()) != 2 {
		t.Errorf("the names are %v", names)
	}
	if token, _ := attributes.Value("quorumlock.token"); token.AsInt64() != 7 {
		t.Errorf("the token is %v", token)
	}
	if hold.Status().Code == codes.Error {
		t.Error("a hold that was released has an error")
	}
}

// TestOutcomes checks the words for errors, in spans and metrics.
func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "ok"},
		{client.ErrNotAcquired, "not_acquired"},
		{client.ErrTimeout, "timeout"},
		{context.Canceled, "cancelled"},
		{client.ErrDeadlock, "deadlock"},
		{client.ErrExpired, "session_expired"},
		{client.ErrRolledBack, "session_rolled_back"},
		{client.ErrClientClosed, "closed"},
		{client.ErrSuperseded, "session_lost"},
		{errors.New("out of cheese"), "error"},
	} {
		t.Run(c.want, func(t *testing.T) {
			o := observe(t)
			ctx, done := o.hooks.Acquire(t.Context(), []string{"a"})
			done(nil, c.err)
			o.hooks.HoldEnded(client.HoldEnd{Context: ctx, Locks: []string{"a"}, Reason: c.err})
			counts := o.counts()
			if counts["quorumlock.acquire.duration"][c.want] != 1 || counts["quorumlock.hold.duration"][c.want] != 1 {
				t.Errorf("%v", counts)
			}
			if lost := counts["quorumlock.holds.lost"][c.want]; (lost == 1) != (c.err != nil) {
				t.Errorf("%d holds were lost", lost)
			}
			for _, span := range o.spans.Ended() {
				if failed := span.Status().Code == codes.Error; failed != (c.err != nil) {
					t.Errorf("%s has the status %v", span.Name(), span.Status())
				}
			}
		})
	}
}
