package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func bootCommand(op *wire.Bootstrap) *wire.Command {
	return &wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: op}}
}

func TestBootstrap(t *testing.T) {
	m := New(Level)
	early := applyOne(t, m, &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: secretHash("s")}}})
	if early.Results[0].Status != wire.Status_FAILED_PRECONDITION {
		t.Errorf("before bootstrap: %v", early.Results[0])
	}
	if r := applyOne(t, m, &wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: 3, LeaderId: "n1"}}}).Results[0]; r.Status != wire.Status_OK {
		t.Errorf("a term before bootstrap: %v", r)
	}
	for why, op := range map[string]*wire.Bootstrap{
		"cluster_id":            {},
		"token_floor":           {ClusterId: "c", TokenFloor: 1 << 63},
		"must ascend":           {ClusterId: "c", Settings: &wire.Settings{MinTtlMs: 20_000}},
		"max_ttl_ms":            {ClusterId: "c", Settings: &wire.Settings{MaxTtlMs: 1<<32 - 1}},
		"max_value_bytes":       {ClusterId: "c", Settings: &wire.Settings{MaxValueBytes: 1 << 30}},
		"max_client_info_bytes": {ClusterId: "c", Settings: &wire.Settings{MaxClientInfoBytes: 1 << 30}},
		"no id":                 {ClusterId: "c", Members: []*wire.Member{{}}},
		"named twice":           {ClusterId: "c", Members: []*wire.Member{{Id: "n"}, {Id: "n"}}},
		"the same incarnation":  {ClusterId: "c", Members: []*wire.Member{{Id: "n", Incarnation: "i"}, {Id: "o", Incarnation: "i"}}},
		"at most 512":           {ClusterId: "c", Members: []*wire.Member{{Id: "n", PeerAddr: strings.Repeat("x", 513)}}},
	} {
		if r := applyOne(t, m, bootCommand(op)).Results[0]; r.Status != wire.Status_INVALID_ARGUMENT || !strings.Contains(r.Message, why) {
			t.Errorf("%s: %v", why, r)
		}
	}
	if r := applyOne(t, m, bootCommand(&wire.Bootstrap{ClusterId: "c", Members: make([]*wire.Member, maxMembers+1)})).Results[0]; r.Status != wire.Status_RESOURCE_EXHAUSTED {
		t.Errorf("too many members: %v", r)
	}
	good := &wire.Bootstrap{ClusterId: "c", TokenFloor: 77, Settings: &wire.Settings{MaxLocks: 5}, Members: []*wire.Member{{Id: "n2"}, {Id: "n1"}}}
	if r := applyOne(t, m, bootCommand(good)).Results[0]; r.Status != wire.Status_OK {
		t.Fatal(r)
	}
	if m.ClusterID() != "c" || m.Token() != 77 || m.FeatureLevel() != 1 || m.Settings().MaxLocks != 5 || m.Settings().DefaultTtlMs != 15_000 || len(m.Members()) != 2 || m.LeaderID() != "n1" {
		t.Errorf("bootstrapped as %q, token %d, level %d, %v, %v", m.ClusterID(), m.Token(), m.FeatureLevel(), m.Settings(), m.Members())
	}
	good.ClusterId, good.TokenFloor = "other", 1
	if r := applyOne(t, m, bootCommand(good)).Results[0]; r.Status != wire.Status_FAILED_PRECONDITION {
		t.Errorf("a second bootstrap: %v", r)
	}
	if m.ClusterID() != "c" || m.Token() != 77 {
		t.Error("a second bootstrap changed the cluster")
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
}

func TestMembers(t *testing.T) {
	m := bootstrapped(t)
	put := func(member *wire.Member) wire.Status_Code {
		r := applyOne(t, m, &wire.Command{Op: &wire.Command_PutMember{PutMember: &wire.PutMember{Member: member}}}).Results[0]
		if err := m.Check(); err != nil {
			t.Error(err)
		}
		return r.Status
	}
	drop := func(id string) wire.Status_Code {
		return applyOne(t, m, &wire.Command{Op: &wire.Command_DropMember{DropMember: &wire.DropMember{Id: id}}}).Results[0].Status
	}
	for i, step := range []struct {
		got, want wire.Status_Code
	}{
		{put(nil), wire.Status_INVALID_ARGUMENT},
		{put(&wire.Member{Id: "n2", PeerAddr: "p"}), wire.Status_OK},
		{put(&wire.Member{Id: "n2", Incarnation: "i2", HttpAddr: "h", Level: 1}), wire.Status_OK},
		{put(&wire.Member{Id: "n2", PeerAddr: "q"}), wire.Status_OK}, // a repeated add
		{put(&wire.Member{Id: "n2", Incarnation: "other"}), wire.Status_FAILED_PRECONDITION},
		{put(&wire.Member{Id: "n2", Level: 1, Drained: true}), wire.Status_INVALID_ARGUMENT}, // no node says that of itself
		{drop("n3"), wire.Status_NOT_FOUND},
		{drop("n1"), wire.Status_OK},
	} {
		if step.got != step.want {
			t.Errorf("step %d: %v, wanted %v", i, step.got, step.want)
		}
	}
	n2, ok := m.Member("n2")
	if !ok || n2.PeerAddr != "q" || n2.Incarnation != "i2" || n2.HttpAddr != "h" || n2.Level != 1 {
		t.Errorf("n2 is known as %v", n2)
	}
	if _, ok := m.Member("n1"); ok {
		t.Error("n1 is still known")
	}
	drop("n2")
	if got := put(&wire.Member{Id: "n2", Incarnation: "other"}); got != wire.Status_OK {
		t.Errorf("a removed node that comes back: %v", got)
	}
	// A removed incarnation stays removed, under its own id or another one.
	for _, gone := range []*wire.Member{{Id: "n2", Incarnation: "i2"}, {Id: "n5", Incarnation: "i2"}} {
		if got := put(gone); got != wire.Status_FAILED_PRECONDITION || !m.WasRemoved("i2") {
			t.Errorf("%v was removed, and is a member again: %v", gone, got)
		}
	}
	if m.WasRemoved("other") || m.WasRemoved("") {
		t.Errorf("removed: %v", m.Removed())
	}
	for i := range maxRemoved {
		put(&wire.Member{Id: "passing", Incarnation: fmt.Sprint("p", i)})
		drop("passing")
	}
	if all := m.Removed(); len(all) != maxRemoved || m.WasRemoved("i2") || all[0].Incarnation != "p0" {
		t.Errorf("%d are remembered, %v to %v", len(all), all[0], all[len(all)-1])
	}
	if again, err := Restore(bytes.NewReader(snapshotOf(t, m)), Level); err != nil || !again.WasRemoved("p7") {
		t.Errorf("the snapshot has forgotten who was removed: %v", err)
	}
	for i := range maxMembers {
		put(&wire.Member{Id: strings.Repeat("m", i+1)})
	}
	if got := put(&wire.Member{Id: "one more"}); got != wire.Status_RESOURCE_EXHAUSTED {
		t.Errorf("one more: %v", got)
	}
}

func TestRaiseLevel(t *testing.T) {
	m := New(3)
	applyOne(t, m, bootCommand(&wire.Bootstrap{ClusterId: "c", Members: []*wire.Member{{Id: "n1", Level: 3}, {Id: "n2"}}}))
	raise := func(level uint32) wire.Status_Code {
		return applyOne(t, m, &wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{Level: level}}}).Results[0].Status
	}
	put := func(level uint32) wire.Status_Code {
		return applyOne(t, m, &wire.Command{Op: &wire.Command_PutMember{PutMember: &wire.PutMember{Member: &wire.Member{Id: "n2", Level: level}}}}).Results[0].Status
	}
	for i, step := range []struct {
		got, want wire.Status_Code
	}{
		{raise(1), wire.Status_OK},
		{raise(2), wire.Status_FAILED_PRECONDITION}, // n2 has not reported its level
		{put(2), wire.Status_OK},
		{raise(3), wire.Status_FAILED_PRECONDITION},
		{raise(2), wire.Status_OK},
		{raise(1), wire.Status_FAILED_PRECONDITION},
		{put(1), wire.Status_FAILED_PRECONDITION},
	} {
		if step.got != step.want {
			t.Errorf("step %d: %v, wanted %v", i, step.got, step.want)
		}
	}
	if m.FeatureLevel() != 2 {
		t.Errorf("level %d", m.FeatureLevel())
	}
}

// TestUpgradeStopsBeforeAnythingIsApplied checks that neither an entry of a higher level nor one that
// raises the level changes anything.
func TestUpgradeStopsBeforeAnythingIsApplied(t *testing.T) {
	m := busy(t, 1)
	before := snapshotOf(t, m)
	open := &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: secretHash("new")}}}
	raise := &wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{Level: Level + 1}}}
	for name, e := range map[string]*wire.Entry{
		"higher":          {Level: Level + 1, Commands: []*wire.Command{open}},
		"higher, a proof": {Level: Level + 1},
		"raising":         {Level: 1, Commands: []*wire.Command{open, raise}},
	} {
		data, err := marshal.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if applied, err := m.Apply(data); !errors.Is(err, ErrUpgrade) || applied != nil {
			t.Errorf("%s: %v, %v", name, applied, err)
		}
	}
	if !bytes.Equal(snapshotOf(t, m), before) {
		t.Error("something was applied")
	}
}

func TestUnsupportedUntilTheLevelIsRaised(t *testing.T) {
	m := bootstrapped(t)
	m.state.level = 0 // as for a level-2 command in a level-1 cluster
	r := applyOne(t, m, &wire.Command{SessionId: 1, Op: &wire.Command_Acknowledge{Acknowledge: &wire.Acknowledge{}}}).Results[0]
	if r.Status != wire.Status_UNSUPPORTED {
		t.Errorf("%v", r)
	}
}

// TestMalformedEntries checks that malformed entries return the same error everywhere and change nothing.
func TestMalformedEntries(t *testing.T) {
	m := busy(t, 1)
	before := snapshotOf(t, m)
	for name, data := range map[string][]byte{
		"garbage":   []byte("\xff\xff\xff"),
		"truncated": entry(t, &wire.Command{SessionId: 1})[:10],
		"bad UTF-8": append(entry(t), 0x1a, 8, 0x82, 3, 5, 0x0a, 3, 0x0a, 1, 0xff),
		"too long":  make([]byte, MaxEntryBytes+1),
	} {
		if _, err := m.Apply(data); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, proof := range [][]byte{nil, entry(t)} {
		if applied, err := m.Apply(proof); err != nil || len(applied.Results) != 0 {
			t.Errorf("a proof: %v, %v", applied, err)
		}
	}
	if !bytes.Equal(snapshotOf(t, m), before) {
		t.Error("the state changed")
	}
}

// TestUnknownOperation checks that only the command with an unknown operation is refused, and that it
// changes nothing.
func TestUnknownOperation(t *testing.T) {
	m := bootstrapped(t)
	cmd := protowire.AppendTag(nil, 999, protowire.BytesType)
	cmd = protowire.AppendBytes(cmd, []byte("of the future"))
	data := protowire.AppendTag(nil, 3, protowire.BytesType)
	data = protowire.AppendBytes(data, cmd)
	applied, err := m.Apply(data)
	if err != nil || applied.Results[0].Status != wire.Status_INVALID_ARGUMENT || applied.Results[0].Revision != 3 {
		t.Errorf("%v, %v", applied, err)
	}
}

// TestTermsRaiseTheTokenCounter begins terms of leaders with all kinds of clocks.
func TestTermsRaiseTheTokenCounter(t *testing.T) {
	const now, year = epoch + 1_000_000_000, MaxAhead >> 32 * 1000
	for name, c := range map[string]struct{ token, clock, median, want uint64 }{
		"the leader's clock":              {77, now, now, ClockToken(now)},
		"a clock behind the counter":      {ClockToken(now) + 5, now, now, ClockToken(now) + 5},
		"no clock":                        {77, 0, 0, 77},
		"ahead of most, less than a year": {77, now + year - 1, now, ClockToken(now + year - 1)},
		"ahead of most, by far":           {77, now + 10*year, now, ClockToken(now) + MaxAhead},
		"ahead of the counter, by far":    {ClockToken(now + year), now + 10*year, now, ClockToken(now+year) + MaxAhead},
		"most clocks wild":                {77, 1<<64 - 1, 1<<64 - 1, maxTokenFloor >> 32 << 32},
		"a millisecond later":             {ClockToken(now) + 4_000_000, now + 1, now, ClockToken(now) + 1<<32/1000},
		"half a second later":             {ClockToken(now), now + 500, now, ClockToken(now) + 1<<31},
		"most clocks ahead of the leader": {77, now, now + 10*year, ClockToken(now)},
	} {
		t.Run(name, func(t *testing.T) {
			m := New(Level)
			applyOne(t, m, bootCommand(&wire.Bootstrap{ClusterId: "c", ClockUnixMs: c.token>>32*1000 + epoch, TokenFloor: c.token}))
			begin := &wire.BeginTerm{Term: 2, LeaderId: "n1", ClockUnixMs: c.clock, MedianUnixMs: c.median}
			if r := applyOne(t, m, &wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: begin}}).Results[0]; r.Status != wire.Status_OK {
				t.Fatal(r)
			}
			if m.Token() != c.want {
				t.Errorf("the counter is at %d, not %d", m.Token(), c.want)
			}
			if err := m.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTokensOfATermBeforeTheBootstrapDoNotComeAgain(t *testing.T) {
	m := New(Level)
	begin := &wire.BeginTerm{Term: 1, LeaderId: "n1", ClockUnixMs: epoch + 9_000, MedianUnixMs: epoch + 9_000}
	applyOne(t, m, &wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: begin}})
	applyOne(t, m, bootCommand(&wire.Bootstrap{ClusterId: "c", TokenFloor: 7}))
	if m.Token() != ClockToken(epoch+9_000) {
		t.Errorf("the counter is at %d", m.Token())
	}
}

// TestTermStarts checks that the beginnings of the last terms are remembered, also through snapshots.
func TestTermStarts(t *testing.T) {
	m := New(Level)
	applyOne(t, m, bootCommand(&wire.Bootstrap{ClusterId: "c"}))
	for term := range uint64(maxTermStarts + 10) {
		begin := &wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: term + 1, LeaderId: "n1"}}}
		applyOne(t, m, begin)
		applyOne(t, m, begin) // again, like a leader that did not learn of the first one's success
	}
	starts := m.TermStarts()
	if len(starts) != maxTermStarts || starts[0].Term != 11 || starts[0].Revision != 22 || starts[maxTermStarts-1].Term != m.Term() {
		t.Fatalf("%d starts, from %v to %v", len(starts), starts[0], starts[len(starts)-1])
	}
	if again := restored(t, snapshotOf(t, m)).TermStarts(); !equal(again, starts) {
		t.Errorf("after a snapshot: %v", again)
	}
	for name, broken := range map[string][]*wire.TermStart{
		"terms fall":         {{Term: 2, Revision: 1}, {Term: 1, Revision: 2}},
		"revisions fall":     {{Term: 1, Revision: 2}, {Term: 2, Revision: 2}},
		"a term to come":     {{Term: m.Term() + 1, Revision: 2}},
		"a revision to come": {{Term: 1, Revision: m.Revision() + 1}},
		"too many":           append([]*wire.TermStart{{Term: 1, Revision: 1}}, starts...),
	} {
		if err := validTermStarts(&wire.SnapshotHeader{Term: m.Term(), Revision: m.Revision(), TermStarts: broken}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
