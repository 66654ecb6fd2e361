package eventlog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func smallEventLog(limit uint64) *Log {
	h := New()
	h.limit = limit
	return h
}

// happen records one entry, with the given events at the next revision.
func happen(h *Log, events ...*wire.Event) {
	revision := h.revision + 1
	for _, e := range events {
		e.Revision = revision
	}
	h.Record(events, revision, h.lineage)
}

func lockEvent(lock string, session uint64) *wire.Event {
	return &wire.Event{Type: wire.Event_GRANTED, Lock: lock, SessionId: session}
}

func begin(t *testing.T, h *Log, req *wire.WatchRequest) *Watch {
	t.Helper()
	w, last := h.Watch(req, nil)
	if w == nil {
		t.Fatalf("no watch: %v", last)
	}
	return w
}

// receiver is a watch with the events that it must get.
type receiver struct {
	w    *Watch
	req  *wire.WatchRequest
	want []*wire.Event
	at   uint64
	lost bool
}

func (v *receiver) concerns(e *wire.Event) bool {
	u := repacked(e)
	return v.w.concerns(&u)
}

// repacked packs and unpacks an event.
func repacked(e *wire.Event) unpacked {
	p, _ := cut(pack(nil, e))
	return packed(p).unpack()
}

func sameEvents(a, b []*wire.Event) bool {
	return slices.EqualFunc(a, b, func(a, b *wire.Event) bool { return proto.Equal(a, b) })
}

// read reads one answer and compares it with the expected events.
func (v *receiver) read(t *testing.T, h *Log) {
	resp, drained := h.Read(v.w)
	if resp.Status == wire.Status_COMPACTED {
		if len(v.want) == 0 || v.want[0].Revision > h.oldest {
			t.Fatalf("%v: COMPACTED, although nothing is lost after %d: %v", v.req, h.oldest, v.want)
		}
		v.lost = true
		return
	}
	if len(resp.Events) > len(v.want) || !sameEvents(resp.Events, v.want[:len(resp.Events)]) {
		t.Fatalf("%v: got %v, want %v", v.req, resp.Events, v.want)
	}
	v.want = v.want[len(resp.Events):]
	if resp.Revision < v.at || len(v.want) > 0 && resp.Revision >= v.want[0].Revision {
		t.Fatalf("%v: revision %d after %d, and still to come is %v", v.req, resp.Revision, v.at, v.want)
	}
	if drained && (len(v.want) > 0 || resp.Revision != h.revision) {
		t.Fatalf("%v: drained at %d of %d, and missing %v", v.req, resp.Revision, h.revision, v.want)
	}
	v.at = resp.Revision
}

var watchRequests = []*wire.WatchRequest{
	{}, {Name: "a/1"}, {Name: "b/2"}, {Prefix: "a"}, {Prefix: "a/"}, {Prefix: "a/1"}, {Prefix: "b/"}, {Prefix: "a/1/more"}, {SessionId: 3}, {SessionId: 77},
}

// TestWatchesGetExactlyTheirEvents verifies, for random events and reading speeds, that every watch gets
// exactly its events, or COMPACTED if and only if it fell behind.
func TestWatchesGetExactlyTheirEvents(t *testing.T) {
	lost, told := 0, 0
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 7))
		h := smallEventLog([]uint64{16, 64, 1024}[seed%3])
		var all []*receiver
		for range 600 {
			switch {
			case len(all) < 30 && random.IntN(8) == 0:
				req := watchRequests[random.IntN(len(watchRequests))]
				all = append(all, &receiver{w: begin(t, h, req), req: req, at: h.revision})
			case random.IntN(3) == 0 && len(all) > 0:
				i := random.IntN(len(all))
				if all[i].read(t, h); all[i].lost {
					h.End(all[i].w)
					all = slices.Delete(all, i, i+1)
					lost++
				}
			default:
				events := make([]*wire.Event, random.IntN(6))
				for i := range events {
					events[i] = randomEvent(random)
				}
				happen(h, events...)
				for _, v := range all {
					for _, e := range events {
						if v.concerns(e) {
							v.want = append(v.want, e)
							told++
						}
					}
				}
			}
		}
		for _, v := range all {
			h.End(v.w)
		}
		if h.watches != 0 || len(h.names)+len(h.prefixes)+len(h.sessions)+len(h.lengths)+len(h.everything) != 0 {
			t.Fatalf("ended watches left something behind: %+v", h.watchIndex)
		}
	}
	if lost == 0 || told == 0 {
		t.Errorf("%d watches fell out, %d events: the test tests nothing", lost, told)
	}
}

func randomEvent(random *rand.Rand) *wire.Event {
	names := []string{"a/1", "a/1/more", "a/2", "b/2", "c"}
	e := lockEvent(names[random.IntN(len(names))], 1+random.Uint64N(4))
	switch random.IntN(5) {
	case 0:
		e.Locks = []string{e.Lock, names[random.IntN(len(names))]}
	case 1:
		e.Lock = "" // an event of a session, without a lock
	}
	return e
}

// TestWatchResumesAnywhere verifies that a watch resumed from an answer's revision gets everything after it,
// and nothing twice. An answer ends with a revision, unless the revision is too long for one.
func TestWatchResumesAnywhere(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	h := New()
	h.limitBytes = 1 << 30
	long := strings.Repeat("x", 8<<10)
	const many = 5 * watchBytes / eventBytes
	var all []*wire.Event
	for range 100 {
		events := make([]*wire.Event, 1+random.IntN(3))
		switch random.IntN(10) {
		case 0:
			events = make([]*wire.Event, many) // a session that held a lot
		case 1:
			events = make([]*wire.Event, 2*revisionBytes/len(long))
		}
		for i := range events {
			if events[i] = lockEvent("x", 1); len(events) < many && len(events) > 3 {
				events[i].Reason = long
			}
		}
		happen(h, events...)
		all = append(all, events...)
	}
	for after := uint64(1); after <= h.revision; after++ {
		want := all[slices.IndexFunc(append(all, &wire.Event{Revision: after + 1}), func(e *wire.Event) bool { return e.Revision > after }):]
		w := begin(t, h, &wire.WatchRequest{Name: "x", AfterRevision: after})
		var got []*wire.Event
		for drained := false; !drained; {
			var resp *wire.WatchResponse
			resp, drained = h.Read(w)
			got = append(got, resp.Events...)
			if next := len(got); next < len(want) {
				if resp.Revision != want[next].Revision-1 {
					t.Fatalf("after %d events the revision is %d, the next is of %d", next, resp.Revision, want[next].Revision)
				}
				if got[next-1].Revision == want[next].Revision && want[next].Reason == "" {
					t.Fatalf("revision %d was cut", want[next].Revision)
				}
			}
		}
		if !sameEvents(got, want) {
			t.Fatalf("after %d: %d events, want %d", after, len(got), len(want))
		}
		h.End(w)
	}
}

// TestKeptEventsAreComplete verifies that packing preserves every field of an event.
func TestKeptEventsAreComplete(t *testing.T) {
	all := &wire.Event{Locks: []string{"a", "b"}}
	fields := all.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if field.IsList() || field.Name() == "audit" || // see below
			field.Name() == "digest" { // not kept: only the push to the waiter needs it
			continue
		}
		value := map[protoreflect.Kind]protoreflect.Value{
			protoreflect.StringKind: protoreflect.ValueOfString("text"),
			protoreflect.BoolKind:   protoreflect.ValueOfBool(true),
			protoreflect.EnumKind:   protoreflect.ValueOfEnum(2),
			protoreflect.Uint32Kind: protoreflect.ValueOfUint32(1<<32 - 1),
			protoreflect.Uint64Kind: protoreflect.ValueOfUint64(1<<64 - 1),
		}[field.Kind()]
		one := &wire.Event{}
		one.ProtoReflect().Set(field, value)
		all.ProtoReflect().Set(field, value)
		for _, e := range []*wire.Event{one, all} {
			if u := repacked(e); !proto.Equal(u.event(), e) {
				t.Errorf("%v is told as %v", e, u.event())
			}
		}
	}
	audit := &wire.AuditRecord{Id: 3, Reason: "r", Lock: "orders/1", Caller: &wire.Caller{Identity: "ann"}}
	for _, e := range []*wire.Event{{Type: wire.Event_AUDITED, Revision: 9, Audit: audit}, {Audit: &wire.AuditRecord{}}, {}, {Locks: []string{"a"}}, {Reason: "r"}, {Lock: "l", Locks: []string{"", "b"}}, {Revision: 3, HoldId: 5}} {
		if u := repacked(e); !proto.Equal(u.event(), e) {
			t.Errorf("%v is told as %v", e, u.event())
		}
	}
}

// TestKeptEventsOfEveryLength verifies events whose lengths take one byte, and two.
func TestKeptEventsOfEveryLength(t *testing.T) {
	for length := range 300 {
		e := &wire.Event{Revision: 7, Lock: strings.Repeat("l", length)}
		b := pack(nil, e)
		first, rest := cut(b)
		u := packed(first).unpack()
		if len(rest) != 0 || packed(first).revision() != 7 || !proto.Equal(u.event(), e) {
			t.Fatalf("a lock of %d bytes is kept as %x", length, b)
		}
	}
}

// TestNamesOfKeptEvents verifies that the names of an event are those of its locks, and not its reason.
func TestNamesOfKeptEvents(t *testing.T) {
	for _, c := range []struct {
		event *wire.Event
		want  string
	}{
		{&wire.Event{}, ""},
		{&wire.Event{Lock: "a"}, "a"},
		{&wire.Event{Lock: "a", Reason: "r"}, "a"},
		{&wire.Event{Lock: "a", Reason: "r", Locks: []string{"b", "c"}}, "abc"},
		{&wire.Event{Locks: []string{"b", "c"}}, "bc"},
		{&wire.Event{Audit: &wire.AuditRecord{Lock: "a"}}, ""},
	} {
		u, names := repacked(c.event), ""
		if u.names(func(name []byte) bool { names += string(name); return false }) || names != c.want {
			t.Errorf("%v names %q, want %q", c.event, names, c.want)
		}
		if last := c.want[max(0, len(c.want)-1):]; u.names(func(name []byte) bool { return string(name) == last }) != (last != "") {
			t.Errorf("%v: %q is not found", c.event, last)
		}
	}
}

// TestAuditRecordsAreForTheirWatches verifies that audit records reach watches of audit records only, live and from the
// past, and that these watches get nothing else.
func TestAuditRecordsAreForTheirWatches(t *testing.T) {
	h := smallEventLog(16)
	h.Reset(100, "here")
	watches := map[string]*Watch{}
	for name, req := range map[string]*wire.WatchRequest{
		"audit": {Audit: true}, "everything": {}, "name": {Name: "a"}, "prefix": {Prefix: "a"}, "session": {SessionId: 1},
	} {
		watches[name] = begin(t, h, req)
	}
	awake := func(name string) bool {
		select {
		case <-watches[name].wake:
			return true
		default:
			return false
		}
	}
	happen(h, lockEvent("a", 1))
	for name := range watches {
		if want := name != "audit"; awake(name) != want {
			t.Errorf("an event wakes the watch of %s: %v", name, !want)
		}
	}
	happen(h, &wire.Event{Type: wire.Event_AUDITED, Audit: &wire.AuditRecord{Id: 7, Lock: "a", SessionId: 1}})
	if !awake("audit") || awake("name") || awake("everything") {
		t.Error("an audit record did not wake its watch, or woke another one")
	}
	watches["the past of audit records"] = begin(t, h, &wire.WatchRequest{Audit: true, AfterRevision: 100, Lineage: "here"})
	watches["the past"] = begin(t, h, &wire.WatchRequest{AfterRevision: 100, Lineage: "here"})
	for name, w := range watches {
		resp, drained := h.Read(w)
		audits := len(resp.Events) == 1 && resp.Events[0].GetAudit().GetId() == 7
		others := len(resp.Events) == 1 && resp.Events[0].GetLock() == "a"
		if want := strings.Contains(name, "audit"); !drained || audits != want || others == want {
			t.Errorf("the watch of %s got %v", name, resp.Events)
		}
		h.End(w)
	}
	if watches, _ := h.Size(); watches != 0 {
		t.Errorf("%d watches are left", watches)
	}
}

func TestWatchFromElsewhereIsCompacted(t *testing.T) {
	h := smallEventLog(16)
	h.Reset(100, "here")
	for range 40 {
		happen(h, lockEvent("x", 1))
	}
	for _, req := range []*wire.WatchRequest{
		{AfterRevision: 99, Lineage: "here"},
		{AfterRevision: 123, Lineage: "here"},
		{AfterRevision: 130, Lineage: "there"},
		{AfterRevision: 130},
		{Lineage: "there"},
	} {
		w, last := h.Watch(req, nil)
		if w != nil || last.GetStatus() != wire.Status_COMPACTED || last.Oldest != 124 || last.Lineage != "here" || last.Message == "" {
			t.Errorf("%v: %v, %v", req, w, last)
		}
	}
	oldest := begin(t, h, &wire.WatchRequest{AfterRevision: 124, Lineage: "here"})
	if resp, _ := h.Read(oldest); len(resp.Events) != 16 || resp.Revision != 140 {
		t.Errorf("after the oldest: %v", resp)
	}
	// After the present revision: the watch is silent until that has passed.
	later := begin(t, h, &wire.WatchRequest{AfterRevision: 142, Lineage: "here"})
	for range 3 {
		happen(h, lockEvent("x", 1))
		resp, drained := h.Read(later)
		if want := h.revision == 143; !drained || (len(resp.Events) == 1) != want || resp.Revision != max(142, h.revision) {
			t.Errorf("at %d: %v", h.revision, resp)
		}
	}
	h.Reset(500, "here") // a snapshot was installed
	for _, w := range []*Watch{oldest, later} {
		select {
		case <-w.wake:
		default:
			t.Error("nobody woke the watch")
		}
		if resp, _ := h.Read(w); resp.Status != wire.Status_COMPACTED || resp.Oldest != 500 {
			t.Errorf("after a snapshot: %v", resp)
		}
	}
	h.Record([]*wire.Event{{Revision: 501}}, 502, "after a restore")
	if w, last := h.Watch(&wire.WatchRequest{AfterRevision: 501, Lineage: "here"}, nil); w != nil || last.Oldest != 502 || last.Lineage != "after a restore" {
		t.Errorf("after a restore: %v", last)
	}
}

// TestIdleWatchNeverFallsOut verifies that a watch without events continues even after everything else has
// been dropped.
func TestIdleWatchNeverFallsOut(t *testing.T) {
	h := smallEventLog(16)
	idle := begin(t, h, &wire.WatchRequest{Name: "rare"})
	for range 1000 {
		happen(h, lockEvent("common", 1))
	}
	if resp, drained := h.Read(idle); !drained || resp.Status != wire.Status_OK || resp.Revision != 1000 {
		t.Errorf("%v", resp)
	}
	happen(h, lockEvent("rare", 1))
	if resp, _ := h.Read(idle); len(resp.Events) != 1 {
		t.Errorf("%v", resp)
	}
}

func TestEventLogIsBounded(t *testing.T) {
	h := New()
	for i := range 3 * maxLoggedEvents {
		happen(h, lockEvent(fmt.Sprint("lock/", i), 1))
	}
	if n := h.next - h.first; n != maxLoggedEvents {
		t.Errorf("%d events in %d places", n, maxLoggedEvents)
	}
	long := lockEvent(strings.Repeat("x", 512), 1)
	for range 64 {
		long.Locks = append(long.Locks, strings.Repeat("y", 512))
	}
	for range 1000 {
		happen(h, &wire.Event{Lock: long.Lock, Locks: long.Locks})
	}
	sum := 0
	for _, page := range h.ring {
		sum += len(page)
	}
	if whole := pageEvents * 64 * 520; sum != h.bytes || sum > maxLoggedBytes || sum < maxLoggedBytes-whole {
		t.Errorf("%d bytes, counted %d", sum, h.bytes)
	}
	for range MaxWatches {
		begin(t, h, &wire.WatchRequest{})
	}
	if w, last := h.Watch(&wire.WatchRequest{}, nil); w != nil || last != nil {
		t.Errorf("one watch too many: %v %v", w, last)
	}
}

// TestEventLogForgetsNoMoreThanItMust verifies that an event log of exactly limitBytes keeps everything, and
// that the newest event is kept whatever its size.
func TestEventLogForgetsNoMoreThanItMust(t *testing.T) {
	const events = 5
	filled := func(limit int) *Log {
		h := New()
		h.limitBytes = limit
		for range events {
			happen(h, lockEvent("lock", 1))
		}
		return h
	}
	all := filled(maxLoggedBytes).bytes
	for limit, want := range map[int]uint64{all: events, all - 1: 1, 0: 1} {
		if _, kept := filled(limit).Size(); kept != want {
			t.Errorf("of %d events with %d bytes a history of %d has %d, want %d", events, all, limit, kept, want)
		}
	}
}

// BenchmarkEventLog measures recording an event that concerns none of the watches, of which there may be many.
func BenchmarkEventLog(b *testing.B) {
	for _, watches := range []int{0, 100, 10_000} {
		b.Run(fmt.Sprint(watches, " watches"), func(b *testing.B) {
			h := New()
			for i := range watches {
				h.Watch(&wire.WatchRequest{Prefix: fmt.Sprint("other/", i)}, nil)
			}
			e := []*wire.Event{lockEvent("orders/refunds/42", 7)}
			b.ReportAllocs()
			for b.Loop() {
				h.Record(e, h.revision+1, "")
			}
		})
	}
}
