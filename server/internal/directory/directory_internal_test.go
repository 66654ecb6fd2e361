package directory

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/wire"
)

var errDisk = errors.New("the disk fails")

// failing is a store whose reads or writes fail.
type failing struct {
	*raft.InmemStore
	reads, writes bool
}

func (f *failing) Get(key []byte) ([]byte, error) {
	if f.reads {
		return nil, errDisk
	}
	return f.InmemStore.Get(key)
}

func (f *failing) Set(key, value []byte) error {
	if f.writes {
		return errDisk
	}
	return f.InmemStore.Set(key, value)
}

// configOf returns the configuration of node n1 on these values. Its state machine is not as new as any record,
// and no member answers.
func configOf(certified string, values raft.StableStore) Config {
	return Config{
		ID: "n1", Incarnation: "i1", Cluster: certified, Configured: []Peer{{"n1", "h1:1"}, {"n2", "h2:1"}, {"n3", "h3:1"}}, Values: values,
		View: func(uint64, func(*fsm.Machine)) bool { return false },
		Ask:  func(context.Context, Peer, string, *wire.StandingRequest) wire.Standing { return wire.Standing_UNKNOWN },
	}
}

// directoryOf opens the directory of node n1 in a stable store that contains page.
func directoryOf(t *testing.T, certified string, page []byte) (*Directory, error) {
	t.Helper()
	values := raft.NewInmemStore()
	if page != nil {
		if err := values.Set(membersKey, page); err != nil {
			t.Fatal(err)
		}
	}
	return Open(configOf(certified, values))
}

func pageOf(t *testing.T, revision uint64, m *wire.Membership) []byte {
	t.Helper()
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint64(nil, revision), body...)
}

func TestDirectoryIsOpenedAsItWasKept(t *testing.T) {
	empty, named := pageOf(t, 5, &wire.Membership{}), pageOf(t, 5, &wire.Membership{ClusterId: "c"})
	recovered := pageOf(t, 5, &wire.Membership{ClusterId: "c+1"})
	for name, c := range map[string]struct {
		certified string
		page      []byte
		err       error
		revision  uint64
		cluster   string
	}{
		"none":                       {"", nil, nil, 0, ""},
		"none, but a certificate":    {"d", nil, nil, 0, ""},
		"seven bytes":                {"", empty[:7], storage.ErrDamaged, 0, ""},
		"eight bytes":                {"", empty, nil, 5, ""},
		"bytes that are no record":   {"", append(slices.Clone(empty), 0xff), storage.ErrDamaged, 0, ""},
		"of a cluster":               {"", named, nil, 5, "c"},
		"of the certified cluster":   {"c", named, nil, 5, "c"},
		"of a recovered cluster":     {"c", recovered, nil, 5, "c+1"},
		"of another's recovery":      {"d", recovered, status.ErrOtherCluster, 0, ""},
		"of another cluster":         {"d", named, status.ErrOtherCluster, 0, ""},
		"no cluster, but certified":  {"d", empty, nil, 5, ""},
		"cut off within the members": {"", named[:len(named)-1], storage.ErrDamaged, 0, ""},
	} {
		d, err := directoryOf(t, c.certified, c.page)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", name, err, c.err)
		}
		if err != nil {
			continue
		}
		if _, revision, _ := d.Record(); revision != c.revision || d.ClusterID() != c.cluster {
			t.Errorf("%s: revision %d, cluster %q", name, revision, d.ClusterID())
		}
	}
}

// someRecord has n2 with its incarnation, n3 without one, and a removed member.
var someRecord = &wire.Membership{
	ClusterId: "c",
	Members: []*wire.Member{
		{Id: "n1", Incarnation: "i1", PeerAddr: "h1:1"}, {Id: "n2", Incarnation: "i2", PeerAddr: "h2:1"}, {Id: "n3", PeerAddr: "h3:1"}, {Id: "n4", Incarnation: "i4"},
	},
	Removed: []*wire.RemovedMember{{Incarnation: "gone"}},
}

func TestStandingByTheRecord(t *testing.T) {
	record := pageOf(t, 5, someRecord)
	alone := pageOf(t, 5, &wire.Membership{Members: []*wire.Member{{Id: "n1", Incarnation: "i1"}}})
	for _, c := range []struct {
		page            []byte
		id, incarnation string
		want            wire.Standing
	}{
		{record, "n2", "i2", wire.Standing_MEMBER},
		{record, "n2", "", wire.Standing_UNKNOWN},
		{record, "n2", "other", wire.Standing_REPLACED},
		{record, "n2", "gone", wire.Standing_REMOVED},
		{record, "n9", "gone", wire.Standing_REMOVED},
		{record, "n3", "i3", wire.Standing_EXPECTED},
		{record, "n3", "", wire.Standing_UNKNOWN},
		{record, "n9", "i9", wire.Standing_UNKNOWN},
		{nil, "n2", "i2", wire.Standing_EXPECTED}, // the configuration names it
		{nil, "n2", "", wire.Standing_UNKNOWN},
		{alone, "n2", "i2", wire.Standing_UNKNOWN}, // the configuration counts only before the beginning
		{nil, "n9", "i9", wire.Standing_UNKNOWN},
	} {
		d, err := directoryOf(t, "", c.page)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.RecordedStanding(c.id, c.incarnation); got != c.want {
			t.Errorf("%s/%s with %d bytes of record: %v, want %v", c.id, c.incarnation, len(c.page), got, c.want)
		}
	}
}

// TestFirstIncarnationIsProvisional verifies that the first incarnation that connects for raft counts for a
// member without a recorded one, and for no other node.
func TestFirstIncarnationIsProvisional(t *testing.T) {
	d, err := directoryOf(t, "", pageOf(t, 5, someRecord))
	if err != nil {
		t.Fatal(err)
	}
	call := func(purpose wire.PeerHello_Purpose, id, incarnation string) {
		d.Observe(&wire.PeerHello{Purpose: purpose, Id: id, Incarnation: incarnation})
	}
	if _, known := d.Incarnation("n3"); known {
		t.Error("n3 has an incarnation before it came")
	}
	if as := d.Standing("n3", "first"); as != wire.Standing_EXPECTED {
		t.Errorf("the first one is %v before it came", as)
	}
	call(wire.PeerHello_CONTROL, "n3", "asks")
	call(wire.PeerHello_RAFT, "n3", "first")
	call(wire.PeerHello_RAFT, "n3", "second")
	call(wire.PeerHello_RAFT, "n2", "other") // is recorded
	call(wire.PeerHello_RAFT, "n9", "i9")    // is not a member
	if want := map[string]string{"n3": "first"}; !maps.Equal(d.provisional, want) {
		t.Errorf("provisional: %v, want %v", d.provisional, want)
	}
	for _, c := range []struct {
		id, incarnation string
		known           bool
	}{{"n2", "i2", true}, {"n3", "first", true}, {"n9", "", false}} {
		if incarnation, known := d.Incarnation(c.id); incarnation != c.incarnation || known != c.known {
			t.Errorf("%s is %q, %v", c.id, incarnation, known)
		}
	}
	if as := d.Standing("n3", "first"); as != wire.Standing_EXPECTED {
		t.Errorf("the first node is %v", as)
	}
	if as := d.Standing("n3", "second"); as != wire.Standing_REPLACED {
		t.Errorf("the second node is %v", as)
	}
	d.provisional["n9"] = "i9"
	if _, known := d.Incarnation("n9"); known {
		t.Error("a node that is no member counts as known")
	}
}

// TestNewRecordVoidsIncarnations replaces and removes nodes, and records one for the first time.
func TestNewRecordVoidsIncarnations(t *testing.T) {
	d, err := directoryOf(t, "", pageOf(t, 5, someRecord))
	if err != nil {
		t.Fatal(err)
	}
	d.provisional = map[string]string{"n2": "x", "n3": "i3", "n4": "x"}
	void, err := d.Store(6, &wire.Membership{ClusterId: "c2", Members: []*wire.Member{
		{Id: "n1", Incarnation: "i1"}, {Id: "n2", Incarnation: "new"}, {Id: "n3", Incarnation: "i3"},
	}})
	slices.Sort(void)
	if err != nil || !slices.Equal(void, []string{"n2", "n4"}) {
		t.Errorf("void: %v, %v", void, err)
	}
	if !maps.Equal(d.provisional, map[string]string{"n3": "i3"}) {
		t.Errorf("still provisional: %v", d.provisional)
	}
	cluster, revision, members := d.Record()
	if cluster != "c2" || revision != 6 || len(members) != 3 || d.wasRemoved("gone") {
		t.Errorf("the record is that of %s at %d with %v", cluster, revision, members)
	}
	again, err := Open(configOf("", d.cfg.Values))
	if err != nil {
		t.Fatal(err)
	}
	if _, revision, members := again.Record(); revision != 6 || len(members) != 3 || again.ClusterID() != "c2" {
		t.Errorf("kept: revision %d, %v", revision, members)
	}
}

func TestPeersAndMembersToAsk(t *testing.T) {
	d, err := directoryOf(t, "", pageOf(t, 5, someRecord))
	if err != nil {
		t.Fatal(err)
	}
	peers := d.Peers([]Peer{{"n1", "h1:1"}, {"n2", "old:1"}, {"n9", "h9:1"}})
	slices.SortFunc(peers, func(a, b Peer) int { return int(a.ID[1]) - int(b.ID[1]) })
	if want := []Peer{{"n2", "h2:1"}, {"n3", "h3:1"}, {"n9", "h9:1"}}; !slices.Equal(peers, want) {
		t.Errorf("peers %v, want %v", peers, want)
	}
	blank, err := directoryOf(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if peers, want := blank.Peers([]Peer{{"n1", "h1:1"}, {"n2", "h2:1"}}), []Peer{{"n2", "h2:1"}}; !slices.Equal(peers, want) {
		t.Errorf("without a record: peers %v, want %v", peers, want)
	}
	for about, want := range map[string]map[Peer]string{
		"n9": {{"n2", "h2:1"}: "i2"},
		"n2": {},
	} {
		if got := d.membersToAsk(about); !maps.Equal(got, want) {
			t.Errorf("members to ask about %s: %v, want %v", about, got, want)
		}
	}
}

// TestRecordThatIsNotKept verifies that a record that could not be stored is used until the node ends.
func TestRecordThatIsNotKept(t *testing.T) {
	d, err := directoryOf(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	store := &failing{InmemStore: raft.NewInmemStore(), writes: true}
	d.cfg.Values = store
	if _, err := d.Store(7, someRecord); !errors.Is(err, errDisk) {
		t.Errorf("kept: %v", err)
	}
	d.cfg.Values = raft.NewInmemStore()
	odd := &wire.Membership{ClusterId: "\xff"}
	if _, err := d.Store(8, odd); err == nil {
		t.Error("a record that cannot be encoded was kept")
	}
	if _, err := d.cfg.Values.Get(membersKey); err == nil {
		t.Error("half a record was kept")
	}
	if _, revision, _ := d.Record(); revision != 8 {
		t.Errorf("known up to revision %d", revision)
	}
	store.reads = true
	if _, err := Open(configOf("", store)); !errors.Is(err, errDisk) {
		t.Errorf("opened without being read: %v", err)
	}
}

// TestEqual compares records that differ in one point each.
func TestEqual(t *testing.T) {
	record := &wire.Membership{
		ClusterId: "c", Members: []*wire.Member{{Id: "n1", HttpAddr: "h1:1"}, {Id: "n2"}}, Removed: []*wire.RemovedMember{{Revision: 3}, {Revision: 5}},
	}
	d, err := directoryOf(t, "", pageOf(t, 5, record))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*wire.Membership)
		equal  bool
	}{
		"the same":                 {func(*wire.Membership) {}, true},
		"another cluster":          {func(m *wire.Membership) { m.ClusterId = "d" }, false},
		"one member less":          {func(m *wire.Membership) { m.Members = m.Members[:1] }, false},
		"one member more":          {func(m *wire.Membership) { m.Members = append(m.Members, &wire.Member{Id: "n3"}) }, false},
		"another member":           {func(m *wire.Membership) { m.Members[1] = &wire.Member{Id: "n3"} }, false},
		"another address":          {func(m *wire.Membership) { m.Members[0].HttpAddr = "h2:1" }, false},
		"another removal":          {func(m *wire.Membership) { m.Removed[1].Revision = 6 }, false},
		"one removal less":         {func(m *wire.Membership) { m.Removed = m.Removed[:1] }, false},
		"no removal":               {func(m *wire.Membership) { m.Removed = nil }, false},
		"members in another order": {func(m *wire.Membership) { slices.Reverse(m.Members) }, true},
	} {
		now := proto.CloneOf(record)
		c.change(now)
		if got := d.Equal(now); got != c.equal {
			t.Errorf("%s: %v, want %v", name, got, c.equal)
		}
	}
}

// TestAnswersOfMembers verifies that the members' answer counts if the record does not know a caller, and
// only while it is cached.
func TestAnswersOfMembers(t *testing.T) {
	for _, said := range []wire.Standing{wire.Standing_UNKNOWN, wire.Standing_MEMBER, wire.Standing_REMOVED} {
		d, err := directoryOf(t, "", pageOf(t, 5, someRecord))
		if err != nil {
			t.Fatal(err)
		}
		d.inquiries = newInquiries(func(context.Context, Peer, string, *wire.StandingRequest) wire.Standing { return said })
		for _, c := range []struct {
			id, incarnation string
			recorded        wire.Standing
			asks            bool
		}{
			{"n9", "i9", wire.Standing_UNKNOWN, true},
			{"n3", "i9", wire.Standing_EXPECTED, false},
			{"n4", "i9", wire.Standing_REPLACED, true},
			{"n4", "i4", wire.Standing_MEMBER, false},
		} {
			want := c.recorded
			if said != wire.Standing_UNKNOWN {
				want = said
			}
			if got := d.AskMembers(t.Context(), &wire.PeerHello{Id: c.id, Incarnation: c.incarnation}, c.id); got != want {
				t.Errorf("members say that %s with %s is %v: %v, want %v", c.id, c.incarnation, said, got, want)
			}
			if !c.asks {
				want = c.recorded
			}
			if got := d.Standing(c.id, c.incarnation); got != want {
				t.Errorf("members said that %s with %s is %v: %v, want %v", c.id, c.incarnation, said, got, want)
			}
		}
	}
}
