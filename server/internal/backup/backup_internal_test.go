package backup

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

var errDisk = errors.New("input/output error")

// metered records the sizes of writes, and fails once it has reached a number of them.
type metered struct {
	sizes  []int
	after  int // 0 means never
	passed func()
}

func (c *metered) Write(p []byte) (int, error) {
	if c.sizes = append(c.sizes, len(p)); len(c.sizes) == c.after {
		return 1, errDisk
	}
	if c.passed != nil {
		c.passed()
	}
	return len(p), nil
}

// TestChunks verifies how a write is split, up to a failure or the end of the context.
func TestChunks(t *testing.T) {
	for name, c := range map[string]struct {
		size    int
		after   int
		cancel  bool // after the first piece
		pieces  int
		written int
		want    error
	}{
		"nothing":           {},
		"one piece":         {size: chunk, pieces: 1, written: chunk},
		"a byte more":       {size: chunk + 1, pieces: 2, written: chunk + 1},
		"several":           {size: 3*chunk - 1, pieces: 3, written: 3*chunk - 1},
		"the second fails":  {size: 3 * chunk, after: 2, pieces: 2, written: chunk + 1, want: errDisk},
		"the context ended": {size: 3 * chunk, cancel: true, pieces: 1, written: chunk, want: context.Canceled},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		to := &metered{after: c.after}
		if c.cancel {
			to.passed = cancel
		}
		written, err := (&chunks{ctx, to}).Write(make([]byte, c.size))
		if written != c.written || !errors.Is(err, c.want) || len(to.sizes) != c.pieces || c.pieces > 0 && to.sizes[0] > chunk {
			t.Errorf("%s: %d bytes in %v, %v", name, written, to.sizes, err)
		}
		cancel()
	}
}

// TestNextSecond verifies that NextSecond waits until the second is over, and does not wait if it already is.
func TestNextSecond(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, into := range []time.Duration{0, 300 * time.Millisecond, time.Second - 1} {
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)) + into)
			of := time.Now()
			if err := NextSecond(t.Context(), of); err != nil || time.Now().Unix() != of.Unix()+1 || time.Since(of) > time.Second {
				t.Errorf("%v into a second: waited %v, %v", into, time.Since(of), err)
			}
			again := time.Now()
			if err := NextSecond(t.Context(), of); err != nil || time.Since(again) != 0 {
				t.Errorf("once it is over: waited %v, %v", time.Since(again), err)
			}
		}
	})
}

// TestWhenTheLastChangeWas verifies that changedAt finds the newest command that has a time, within its
// limit.
func TestWhenTheLastChangeWas(t *testing.T) {
	entry := func(kind raft.LogType, wall int64, more ...byte) *raft.Log {
		data, err := proto.Marshal(&wire.Entry{WallUnixMs: wall})
		if err != nil {
			t.Fatal(err)
		}
		return &raft.Log{Type: kind, Data: append(data, more...)}
	}
	command, noop := entry(raft.LogCommand, 7), entry(raft.LogNoop, 8)
	untimed, malformed := entry(raft.LogCommand, 0), entry(raft.LogCommand, 9, 0xff)
	repeated := func(n int, e *raft.Log) (all []*raft.Log) {
		for range n {
			all = append(all, e)
		}
		return all
	}
	for name, c := range map[string]struct {
		entries []*raft.Log
		want    int64
	}{
		"none":                   {nil, 0},
		"the last one":           {[]*raft.Log{entry(raft.LogCommand, 6), command}, 7},
		"behind it is no change": {[]*raft.Log{command, noop, untimed, malformed}, 7},
		"no change at all":       {[]*raft.Log{noop, untimed, malformed}, 0},
		"as far as is looked":    {append([]*raft.Log{command}, repeated(maxDated-1, noop)...), 7},
		"farther":                {append([]*raft.Log{command}, repeated(maxDated, noop)...), 0},
		"a gap":                  {[]*raft.Log{command, nil, noop}, 0},
	} {
		log := raft.NewInmemStore()
		for i, e := range c.entries {
			if e == nil {
				continue
			}
			one := *e
			one.Index = uint64(i + 1)
			if err := log.StoreLog(&one); err != nil {
				t.Fatal(err)
			}
		}
		if got := changedAt(log, uint64(len(c.entries))); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestLogAfter verifies that logAfter yields the entries after an index until it is stopped or fails.
func TestLogAfter(t *testing.T) {
	logs := raft.NewInmemStore()
	if err := logs.StoreLogs([]*raft.Log{{Index: 1}, {Index: 2}, {Index: 3}, {Index: 4}, {Index: 5}}); err != nil {
		t.Fatal(err)
	}
	read := func(after uint64, most int) (indexes []uint64, failed error) {
		for e, err := range logAfter(logs)(after) {
			if err != nil {
				return indexes, err
			}
			if indexes = append(indexes, e.Index); len(indexes) == most {
				break
			}
		}
		return indexes, nil
	}
	for _, c := range []struct {
		after uint64
		most  int
		want  string
	}{{0, 99, "[1 2 3 4 5]"}, {3, 99, "[4 5]"}, {3, 1, "[4]"}, {5, 99, "[]"}, {9, 99, "[]"}} {
		if got, err := read(c.after, c.most); fmt.Sprint(got) != c.want || err != nil {
			t.Errorf("after %d, at most %d: %v, %v", c.after, c.most, got, err)
		}
	}
	if err := logs.DeleteRange(3, 3); err != nil {
		t.Fatal(err)
	}
	if got, err := read(1, 99); fmt.Sprint(got) != "[2]" || !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("over a gap: %v, %v", got, err)
	}
}
