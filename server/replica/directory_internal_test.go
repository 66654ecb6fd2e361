package replica

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

// bookOf opens the book of node n1 in a stable store that contains page.
func directoryOf(t *testing.T, certified string, page []byte) (*directory, error) {
	t.Helper()
	stable := raft.NewInmemStore()
	if page != nil {
		if err := stable.Set(membersKey, page); err != nil {
			t.Fatal(err)
		}
	}
	cfg := Config{ID: "n1", ClusterID: certified, Cluster: []Peer{{"n1", "h1:1"}, {"n2", "h2:1"}, {"n3", "h3:1"}}}
	b, err := openDirectory(cfg, "i1", stable)
	if err == nil {
		b.live = func(uint64, func(*fsm.Machine)) bool { return false }
		b.vouchers = newVouchers(nil)
	}
	return b, err
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
	for name, c := range map[string]struct {
		certified string
		page      []byte
		err       error
		revision  uint64
		cluster   string
	}{
		"none":                       {"", nil, nil, 0, ""},
		"none, but a certificate":    {"d", nil, nil, 0, "d"},
		"seven bytes":                {"", empty[:7], storage.ErrDamaged, 0, ""},
		"eight bytes":                {"", empty, nil, 5, ""},
		"bytes that are no record":   {"", append(slices.Clone(empty), 0xff), storage.ErrDamaged, 0, ""},
		"of a cluster":               {"", named, nil, 5, "c"},
		"of the certified cluster":   {"c", named, nil, 5, "c"},
		"of another cluster":         {"d", named, status.ErrOtherCluster, 0, ""},
		"no cluster, but certified":  {"d", empty, nil, 5, "d"},
		"cut off within the members": {"", named[:len(named)-1], storage.ErrDamaged, 0, ""},
	} {
		b, err := directoryOf(t, c.certified, c.page)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", name, err, c.err)
		}
		if err != nil {
			continue
		}
		if _, revision, _ := b.page(); revision != c.revision || b.ClusterID() != c.cluster {
			t.Errorf("%s: revision %d, cluster %q", name, revision, b.ClusterID())
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
		b, err := directoryOf(t, "", c.page)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.standing(c.id, c.incarnation); got != c.want {
			t.Errorf("%s/%s with %d bytes of record: %v, want %v", c.id, c.incarnation, len(c.page), got, c.want)
		}
	}
}

// TestFirstIncarnationIsNoted verifies that the first incarnation that connects for raft is noted for a
// member without a recorded one, and for no other node.
func TestFirstIncarnationIsNoted(t *testing.T) {
	b, err := directoryOf(t, "", pageOf(t, 5, someRecord))
	if err != nil {
		t.Fatal(err)
	}
	call := func(purpose wire.PeerHello_Purpose, id, incarnation string) {
		b.Observe(&wire.PeerHello{Purpose: purpose, Id: id, Incarnation: incarnation})
	}
	if _, known := b.Incarnation("n3"); known {
		t.Error("n3 has an incarnation before it came")
	}
	if as := b.Standing("n3", "first"); as != wire.Standing_EXPECTED {
		t.Errorf("the first one is %v before it came", as)
	}
	call(wire.PeerHello_CONTROL, "n3", "asks")
	call(wire.PeerHello_RAFT, "n3", "first")
	call(wire.PeerHello_RAFT, "n3", "second")
	call(wire.PeerHello_RAFT, "n2", "other") // is recorded
	call(wire.PeerHello_RAFT, "n9", "i9")    // is not a member
	if want := map[string]string{"n3": "first"}; !maps.Equal(b.noted, want) {
		t.Errorf("noted %v, want %v", b.noted, want)
	}
	for _, c := range []struct {
		id, incarnation string
		known           bool
	}{{"n2", "i2", true}, {"n3", "first", true}, {"n9", "", false}} {
		if incarnation, known := b.Incarnation(c.id); incarnation != c.incarnation || known != c.known {
			t.Errorf("%s is %q, %v", c.id, incarnation, known)
		}
	}
	if as := b.Standing("n3", "first"); as != wire.Standing_EXPECTED {
		t.Errorf("the node that was noted is %v", as)
	}
	if as := b.Standing("n3", "second"); as != wire.Standing_REPLACED {
		t.Errorf("another one than was noted is %v", as)
	}
	b.noted["n9"] = "i9"
	if _, known := b.Incarnation("n9"); known {
		t.Error("a node that is no member counts as known")
	}
}

// TestNewRecordVoidsIncarnations replaces and removes nodes, and records one for the first time.
func TestNewRecordVoidsIncarnations(t *testing.T) {
	b, err := directoryOf(t, "", pageOf(t, 5, someRecord))
	if err != nil {
		t.Fatal(err)
	}
	b.noted = map[string]string{"n2": "x", "n3": "i3", "n4": "x"}
	gone, err := b.keep(6, &wire.Membership{ClusterId: "c2", Members: []*wire.Member{
		{Id: "n1", Incarnation: "i1"}, {Id: "n2", Incarnation: "new"}, {Id: "n3", Incarnation: "i3"},
	}})
	slices.Sort(gone)
	if err != nil || !slices.Equal(gone, []string{"n2", "n4"}) {
		t.Errorf("void: %v, %v", gone, err)
	}
	if !maps.Equal(b.noted, map[string]string{"n3": "i3"}) {
		t.Errorf("still noted: %v", b.noted)
	}
	cluster, revision, members := b.page()
	if cluster != "c2" || revision != 6 || len(members) != 3 || b.wasRemoved("gone") {
		t.Errorf("the record is that of %s at %d with %v", cluster, revision, members)
	}
	again, err := openDirectory(Config{ID: "n1"}, "i1", b.stable)
	if err != nil {
		t.Fatal(err)
	}
	if _, revision, members := again.page(); revision != 6 || len(members) != 3 || again.ClusterID() != "c2" {
		t.Errorf("kept: revision %d, %v", revision, members)
	}
}

func TestPeersAndWitnesses(t *testing.T) {
	b, err := directoryOf(t, "", pageOf(t, 5, someRecord))
	if err != nil {
		t.Fatal(err)
	}
	peers := b.peers([]Peer{{"n1", "h1:1"}, {"n2", "old:1"}, {"n9", "h9:1"}})
	slices.SortFunc(peers, func(a, b Peer) int { return int(a.ID[1]) - int(b.ID[1]) })
	if want := []Peer{{"n2", "h2:1"}, {"n3", "h3:1"}, {"n9", "h9:1"}}; !slices.Equal(peers, want) {
		t.Errorf("peers %v, want %v", peers, want)
	}
	blank, err := directoryOf(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if peers, want := blank.peers([]Peer{{"n1", "h1:1"}, {"n2", "h2:1"}}), []Peer{{"n2", "h2:1"}}; !slices.Equal(peers, want) {
		t.Errorf("without a record: peers %v, want %v", peers, want)
	}
	for about, want := range map[string]map[Peer]string{
		"n9": {{"n2", "h2:1"}: "i2"},
		"n2": {},
	} {
		if got := b.witnesses(about); !maps.Equal(got, want) {
			t.Errorf("witnesses about %s: %v, want %v", about, got, want)
		}
	}
}

// TestRecordThatIsNotKept verifies that a record that could not be stored is used until the node ends.
func TestRecordThatIsNotKept(t *testing.T) {
	b, err := directoryOf(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	store := &refusing{InmemStore: raft.NewInmemStore(), key: string(membersKey)}
	b.stable = store
	if _, err := b.keep(7, someRecord); !errors.Is(err, errDisk) {
		t.Errorf("kept: %v", err)
	}
	b.stable = raft.NewInmemStore()
	odd := &wire.Membership{ClusterId: "\xff"}
	if _, err := b.keep(8, odd); err == nil {
		t.Error("a record that cannot be encoded was kept")
	}
	if _, err := b.stable.Get(membersKey); err == nil {
		t.Error("half a record was kept")
	}
	if _, revision, _ := b.page(); revision != 8 {
		t.Errorf("known up to revision %d", revision)
	}
	store.key, store.read = "", string(membersKey)
	if _, err := openDirectory(Config{ID: "n1"}, "i1", store); !errors.Is(err, errDisk) {
		t.Errorf("opened without being read: %v", err)
	}
}

func TestSameRemoved(t *testing.T) {
	b := &directory{removed: []*wire.RemovedMember{{Revision: 3}, {Revision: 5}}}
	for _, c := range []struct {
		revisions []uint64
		same      bool
	}{{[]uint64{3, 5}, true}, {[]uint64{3, 6}, false}, {[]uint64{3}, false}, {nil, false}} {
		var now []*wire.RemovedMember
		for _, revision := range c.revisions {
			now = append(now, &wire.RemovedMember{Revision: revision})
		}
		if b.sameRemoved(now) != c.same {
			t.Errorf("removed at %v: the same %v, want %v", c.revisions, !c.same, c.same)
		}
	}
}

// TestVouchedStandings verifies that the members' answer counts if the record does not know a caller, and
// only while it is cached.
func TestVouchedStandings(t *testing.T) {
	for _, said := range []wire.Standing{wire.Standing_UNKNOWN, wire.Standing_MEMBER, wire.Standing_REMOVED} {
		b, err := directoryOf(t, "", pageOf(t, 5, someRecord))
		if err != nil {
			t.Fatal(err)
		}
		b.vouchers = newVouchers(func(context.Context, Peer, string, callerKey) wire.Standing { return said })
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
			if got := b.Vouch(t.Context(), &wire.PeerHello{Id: c.id, Incarnation: c.incarnation}, c.id); got != want {
				t.Errorf("members say that %s with %s is %v: %v, want %v", c.id, c.incarnation, said, got, want)
			}
			if !c.asks {
				want = c.recorded
			}
			if got := b.Standing(c.id, c.incarnation); got != want {
				t.Errorf("members said that %s with %s is %v: %v, want %v", c.id, c.incarnation, said, got, want)
			}
		}
	}
}
