package client

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// benchClient opens a session with the fake in real time. Its benchmarks measure client, framing and fake
// together.
func benchClient(b testing.TB) *Session {
	f := newFake(b, 1)
	f.set(func() {
		f.window = 1024
		f.intercept = func(*fakeConn, *wire.Request) bool { f.seen = f.seen[:0]; return false }
	})
	c := f.client()
	s, err := c.NewSession(context.Background(), SessionOptions{TTL: time.Minute})
	ok(b, err)
	return s
}

func BenchmarkLockUnlock(b *testing.B) {
	s := benchClient(b)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		hold, err := s.Lock(ctx, "x")
		ok(b, err)
		ok(b, hold.Unlock(ctx))
	}
}

func BenchmarkLockUnlockParallel(b *testing.B) {
	s := benchClient(b)
	ctx := context.Background()
	var id atomic.Int64
	b.SetParallelism(128)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		name := fmt.Sprint("x", id.Add(1))
		for pb.Next() {
			hold, err := s.Lock(ctx, name)
			ok(b, err)
			ok(b, hold.Unlock(ctx))
		}
	})
}

func BenchmarkCachedLockUnlock(b *testing.B) {
	s := benchClient(b)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		hold, err := s.Lock(ctx, "x", WithCached(time.Minute))
		ok(b, err)
		ok(b, hold.Unlock(ctx))
	}
}

// BenchmarkCachedLockUnlockWaiting measures the local hand-over between callers that want one lock all the time.
func BenchmarkCachedLockUnlockWaiting(b *testing.B) {
	s := benchClient(b)
	ctx := context.Background()
	b.SetParallelism(8)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			hold, err := s.Lock(ctx, "x", WithCached(time.Minute))
			ok(b, err)
			ok(b, hold.Unlock(ctx))
		}
	})
}
