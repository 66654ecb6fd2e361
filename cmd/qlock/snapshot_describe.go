package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// snapshotJSON describes a snapshot. As in protojson, 64-bit numbers are strings.
type snapshotJSON struct {
	ClusterID string `json:"clusterId"`
	Lineage   string `json:"lineage"`
	Level     uint32 `json:"level"`
	Revision  string `json:"revision"`
	Token     string `json:"token"`
	Term      string `json:"term"`
	LeaderID  string `json:"leaderId"`
	Sessions  string `json:"sessions"`
	Locks     string `json:"locks"`
	Holds     string `json:"holds"`
	Waiters   string `json:"waiters"`
	Members   string `json:"members"`
	Audit     string `json:"audit"`
	Settings  one    `json:"settings"`
}

func describeSnapshot(m *fsm.Machine) snapshotJSON {
	t := m.Totals()
	return snapshotJSON{
		ClusterID: m.ClusterID(), Lineage: m.Lineage(), Level: m.FeatureLevel(), Term: fmt.Sprint(m.Term()), LeaderID: m.LeaderID(),
		Revision: fmt.Sprint(m.Revision()), Token: fmt.Sprint(m.Token()),
		Sessions: fmt.Sprint(t.Sessions), Locks: fmt.Sprint(t.Locks), Holds: fmt.Sprint(t.Holds), Waiters: fmt.Sprint(t.Waiters),
		Members: fmt.Sprint(len(m.Members())), Audit: fmt.Sprint(len(auditOf(m))), Settings: one{m.Settings()},
	}
}

// savedJSON is snapshotJSON with the node's description of a stale snapshot, or null.
type savedJSON struct {
	snapshotJSON
	Stale *one `json:"stale"`
}

func describeSaved(m *fsm.Machine, about *wire.StaleSnapshot) savedJSON {
	described := savedJSON{snapshotJSON: describeSnapshot(m)}
	if about != nil {
		described.Stale = &one{about}
	}
	return described
}

// writeStale describes how far a stale snapshot can be relied on. It writes nothing for other snapshots.
func writeStale(w io.Writer, about *wire.StaleSnapshot, now time.Time) {
	if about == nil {
		return
	}
	fmt.Fprintf(w, "it is stale: node %s saved what it alone had, and the last changes that were acknowledged may be missing\n", dash(printable(about.GetNodeId())))
	if about.GetLeaderId() != "" {
		fmt.Fprintf(w, "the node knew a leader, %s: without --stale the snapshot has everything\n", printable(about.GetLeaderId()))
	}
	changed := "at a time that the node does not know"
	if ms := about.GetLastChangeUnixMs(); ms != 0 {
		changed = now.Sub(time.UnixMilli(ms)).Round(time.Second).String() + " ago by this clock"
	}
	fmt.Fprintf(w, "it ends with log entry %d, revision %d, of which the last change was made %s\n", about.GetIndex(), about.GetRevision(), changed)
	if about.GetIndex() > about.GetCommittedIndex() {
		fmt.Fprintf(w, "the node knows entries up to %d to be committed: later ones may have been acknowledged, or never have been\n", about.GetCommittedIndex())
	}
}

// contents is snapshotJSON with the locks, if requested.
type contents struct {
	snapshotJSON
	listed bool
	locks  []*wire.LockInfo
}

// MarshalJSON names the list lockList, because locks is their number.
func (c contents) MarshalJSON() ([]byte, error) {
	if !c.listed {
		return json.Marshal(c.snapshotJSON)
	}
	raw, err := list[*wire.LockInfo]{"lockList", c.locks}.MarshalJSON()
	if err != nil {
		return nil, err
	}
	head, err := json.Marshal(c.snapshotJSON)
	if err != nil {
		return nil, err
	}
	return append(append(head[:len(head)-1], ','), raw[1:]...), nil
}

// inBrief describes a snapshot in one line.
func inBrief(m *fsm.Machine) string {
	t := m.Totals()
	return fmt.Sprintf("cluster %s, revision %d, last token %d; %s, %s, %s, %s", dash(printable(m.ClusterID())), m.Revision(), m.Token(),
		count(t.Sessions, "session"), count(t.Locks, "lock"), count(t.Holds, "hold"), count(t.Waiters, "waiter"))
}

// writeSnapshot describes a snapshot for people.
func writeSnapshot(w io.Writer, path string, m *fsm.Machine) {
	fmt.Fprintf(w, "%s\n%s\n", printable(path), inBrief(m))
	fmt.Fprintf(w, "lineage %s, feature level %d, term %d, led by %s, %s\n", dash(printable(m.Lineage())), m.FeatureLevel(), m.Term(),
		dash(printable(m.LeaderID())), count(uint64(len(auditOf(m))), "audit record"))
	t := newTable("NODE", "CLIENT", "PEER", "HTTP")
	for _, n := range m.Members() {
		t.row(printable(n.GetId()), dash(printable(n.GetClientAddr())), dash(printable(n.GetPeerAddr())), dash(printable(n.GetHttpAddr())))
	}
	t.write(w)
}

// writeSavedLocks writes a table like that of the verb locks, without the columns that only a cluster
// knows.
func writeSavedLocks(w io.Writer, locks []*wire.LockInfo) {
	if len(locks) == 0 {
		fmt.Fprintln(w, "no locks")
		return
	}
	t := newTable("NAME", "MODE", "TOKEN", "SINCE", "WAITING", "HELD BY")
	for _, l := range locks {
		waiting := fmt.Sprint(l.GetQueueLength())
		for _, h := range l.GetHolders() {
			t.row(printable(l.GetName()), share(l, h.GetMode(), h.GetPermits()), fmt.Sprint(h.GetToken()), when(h.GetGrantedUnixMs()),
				waiting, who(h))
		}
		if len(l.GetHolders()) == 0 {
			t.row(printable(l.GetName()), "-", "-", "-", waiting, "nobody")
		}
	}
	t.write(w)
}

// lockLister lists the locks of a cluster or of a snapshot.
type lockLister interface {
	ListLocks(context.Context, *wire.ListLocksRequest) (*wire.ListLocksResponse, error)
}

// machineLocks lists the locks of a snapshot.
type machineLocks struct{ m *fsm.Machine }

// ListLocks never returns an error.
func (l machineLocks) ListLocks(_ context.Context, req *wire.ListLocksRequest) (*wire.ListLocksResponse, error) {
	return l.m.ListLocks(req), nil
}
