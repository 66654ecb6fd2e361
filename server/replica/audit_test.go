package replica_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestClusterActionsAreAudited verifies that an operator's action on the cluster is in the audit log, with
// operator and reason, before it happens. When a node stops and hands leadership over, that is no operator's
// action.
func TestClusterActionsAreAudited(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		fresh := c.newcomer("n4")
		leader.mustAdmin(func(n *node) error {
			return n.AddMember(t.Context(), &wire.AddMemberRequest{Id: "n4", PeerAddr: "n4:7401", Operator: "ann", Reason: "grow"})
		})
		c.eventually("n4 votes", func() bool { return c.nodeStatus("n4").GetVoter() })
		c.leader().mustAdmin(func(n *node) error {
			return n.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Id: "n4", Operator: "bob", Reason: "kernel"})
		})
		c.eventually("n4 leads", func() bool { return c.leader() == fresh })
		var file bytes.Buffer
		if err := c.leader().SaveSnapshot(t.Context(), &wire.SaveSnapshotRequest{Operator: "cid", Reason: "nightly"}, &file); err != nil {
			t.Fatal(err)
		}
		err := c.leader().RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: "n4", Operator: "dan", Reason: "shrink"})
		if !errors.Is(err, status.ErrNotLeader) {
			t.Fatalf("the leader removed itself: %v", err)
		}
		c.eventually("another leads", func() bool { return c.leader() != fresh })
		c.leader().mustAdmin(func(n *node) error {
			return n.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: "n4", Operator: "dan", Reason: "shrink"})
		})
		acknowledged, err := c.leader().AcknowledgeAlarms(t.Context(), &wire.AcknowledgeAlarmsRequest{Operator: "eve", Reason: "seen"})
		if err != nil {
			t.Fatal(err)
		}
		want := []wire.AuditRecord_Action{
			wire.AuditRecord_ACKNOWLEDGE_ALARMS, wire.AuditRecord_REMOVE_MEMBER, wire.AuditRecord_TRANSFER_LEADERSHIP, wire.AuditRecord_SAVE_SNAPSHOT,
			wire.AuditRecord_TRANSFER_LEADERSHIP, wire.AuditRecord_ADD_MEMBER,
		}
		all := c.leader().audit()
		got := withoutOutcomes(t, all)
		if t.Failed() {
			return
		}
		if len(got) != len(want) {
			t.Fatalf("audit: %v", got)
		}
		for i, action := range want {
			if got[i].Action != action || got[i].Operator == "" || got[i].Reason == "" || i != 0 && action != wire.AuditRecord_SAVE_SNAPSHOT && got[i].Member == "" {
				t.Errorf("record %d: %v", i, got[i])
			}
		}
		if r := got[0]; r.Operator != "eve" || r.Reason != "seen" || r.Revision != acknowledged.Revision {
			t.Errorf("the acknowledgement at %v: %v", acknowledged, r)
		}
		if r := got[5]; r.Operator != "ann" || r.Reason != "grow" || r.Member != "n4" || r.Address != "n4:7401" {
			t.Errorf("the addition: %v", r)
		}
		before := len(all)
		c.leader().stop()
		if got := c.leader().audit(); len(got) != before {
			t.Errorf("a graceful stop was recorded: %v", got[0])
		}
	})
}

// withoutOutcomes returns the records of beginnings. Each must have one of its outcome behind it, which is OK.
func withoutOutcomes(t *testing.T, records []*wire.AuditRecord) (begun []*wire.AuditRecord) {
	t.Helper()
	ended := map[uint64]*wire.AuditRecord{}
	for _, r := range records { // newest first
		if r.BegunRevision != 0 {
			ended[r.BegunRevision] = r
			continue
		}
		begun = append(begun, r)
		if r.Outcome == wire.Status_OK {
			continue
		}
		end := proto.CloneOf(ended[r.Revision])
		if end.GetOutcome() != wire.Status_OK || r.Outcome != wire.Status_UNSPECIFIED {
			t.Errorf("%v ended with %v", r, end)
			continue
		}
		end.Id, end.Revision, end.WallUnixMs, end.Outcome, end.BegunRevision = r.Id, r.Revision, r.WallUnixMs, 0, 0
		if !proto.Equal(r, end) {
			t.Errorf("%v and %v differ", r, end)
		}
	}
	return begun
}

// TestFailuresOfActsAreAudited verifies that the audit log has what a failed backup and a failed transfer ended with.
func TestFailuresOfActsAreAudited(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		full := fmt.Errorf("the disk is full: %s", strings.Repeat("x", 2_000))
		for what, save := range map[string]func() error{
			"a backup": func() error {
				return leader.SaveSnapshot(t.Context(), &wire.SaveSnapshotRequest{Reason: "nightly", Ticket: "T-1"}, failing{full})
			},
			"a stale backup": func() error {
				return c.followers()[0].SaveStaleSnapshot(t.Context(), &wire.SaveSnapshotRequest{Reason: "nightly", Ticket: "T-1"},
					func(*wire.StaleSnapshot) error { return nil }, failing{full})
			},
		} {
			before := len(leader.audit())
			if err := save(); !errors.Is(err, full) {
				t.Fatalf("%s: %v", what, err)
			}
			got := leader.audit()
			if len(got) != before+2 {
				t.Fatalf("%s: audit %v", what, got)
			}
			end, begin := got[0], got[1]
			if end.Outcome != wire.Status_INTERNAL || !strings.Contains(end.Message, "the disk is full") || len(end.Message) > 512 ||
				end.BegunRevision == 0 || end.BegunRevision != begin.Revision || end.Ticket != "T-1" || begin.Ticket != "T-1" || begin.Outcome != 0 {
				t.Errorf("%s: %v, %v", what, begin, end)
			}
		}
	})
}

// failing is a file that cannot be written.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestClusterActionsNeedAReason verifies that nothing happens without a reason.
func TestClusterActionsNeedAReason(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		for _, reason := range []string{"", " ", "two\nlines"} {
			_, acknowledged := leader.AcknowledgeAlarms(t.Context(), &wire.AcknowledgeAlarmsRequest{Reason: reason})
			_, restored := leader.Restore(t.Context(), &wire.RestoreRequest{Reason: reason})
			for what, err := range map[string]error{
				"add":      leader.AddMember(t.Context(), &wire.AddMemberRequest{Id: "n9", PeerAddr: "n9:1", Reason: reason}),
				"remove":   leader.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: "n1", Reason: reason}),
				"transfer": leader.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Reason: reason}),
				"backup":   leader.SaveSnapshot(t.Context(), &wire.SaveSnapshotRequest{Reason: reason}, &bytes.Buffer{}),
				"restore":  restored,
				"alarms":   acknowledged,
			} {
				if !errors.Is(err, status.ErrInvalid) {
					t.Errorf("%s because of %q: %v", what, reason, err)
				}
			}
		}
		if len(leader.audit()) != 0 || !leader.Serving() {
			t.Errorf("it leads: %v, audit %v", leader.Serving(), leader.audit())
		}
	})
}
