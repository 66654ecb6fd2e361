package model

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Load returns a model with the state in a snapshot. It trusts the snapshot: earlier errors are not found any
// more.
func Load(r io.Reader) (*Model, error) {
	d, in := New(), bufio.NewReader(r)
	for {
		record := &wire.SnapshotRecord{}
		err := protodelim.UnmarshalFrom(in, record)
		if errors.Is(err, io.EOF) {
			return nil, errors.New("load a snapshot: it has no end")
		}
		if err != nil {
			return nil, fmt.Errorf("load a snapshot: %w", err)
		}
		if record.GetTrailer() != nil {
			return d, nil
		}
		if err := d.load(record); err != nil {
			return nil, fmt.Errorf("load a snapshot: %w", err)
		}
	}
}

func (d *Model) load(record *wire.SnapshotRecord) error {
	switch body := record.Record.(type) {
	case *wire.SnapshotRecord_Header:
		h := body.Header
		d.Cluster, d.Level, d.Lineage, d.Limits = h.ClusterId, h.Level, h.Lineage, h.Settings
		d.Revision, d.Token, d.Term, d.leader = h.Revision, h.Token, h.Term, h.LeaderId
		d.Suspended, d.Acknowledged = h.GrantsSuspended, h.AlarmsAcknowledged
		d.Opened, d.audited = h.LastSessionId, h.LastAuditId
		d.before = h.SessionFloor
		d.acted = h.FirstAct
		d.Saved = h.LastBackup
		d.PolicyRevision, d.Certified = h.PolicyRevision, h.Certified
	case *wire.SnapshotRecord_Member:
		d.member(body.Member)
	case *wire.SnapshotRecord_Session:
		s := body.Session
		live := &Session{
			ID: s.Id, Generation: s.Generation, Hash: string(s.SecretHash), TTL: s.TtlMs, Client: s.Client, Leased: s.Leased,
			Opened: s.OpenedUnixMs, mark: s.AckedBelow, Identity: s.Identity,
			ByValue: len(s.OwnerValue) > 0, Value: string(s.OwnerValue), Remaining: s.RemainingMs,
		}
		if s.Unconfirmed {
			live.TTL, live.Later = waitTTL, s.TtlMs
		}
		d.Live, d.byID[s.Id] = append(d.Live, live), live
	case *wire.SnapshotRecord_Lock:
		d.Locks[body.Lock.Name] = &Lock{body.Lock.Order, body.Lock.Limit}
	case *wire.SnapshotRecord_Claim:
		return d.loadClaim(body.Claim)
	case *wire.SnapshotRecord_Outcome:
		return d.loadAnswer(body.Outcome)
	case *wire.SnapshotRecord_Audit:
		if body.Audit.Imported != nil {
			d.Imported = append(d.Imported, body.Audit)
		} else {
			d.Audit = append(d.Audit, body.Audit)
		}
	case *wire.SnapshotRecord_RemovedMember:
		d.Removed = append(d.Removed, body.RemovedMember)
	case *wire.SnapshotRecord_Token:
		d.Tokens = append(d.Tokens, body.Token)
	case *wire.SnapshotRecord_Policy:
		d.Policy = body.Policy
	case *wire.SnapshotRecord_KeySender:
		s := body.KeySender
		d.ports[s.NodeId] = &port{boot: s.Boot, done: s.AckedBelow, answers: map[uint64]*portAnswer{}}
	case *wire.SnapshotRecord_KeyResult:
		return d.loadKeyResult(body.KeyResult)
	}
	return nil
}

func (d *Model) loadKeyResult(body *wire.KeyResultRecord) error {
	from := d.ports[body.NodeId]
	if from == nil {
		return fmt.Errorf("a result is of the Redis port of node %q, which has sent nothing", body.NodeId)
	}
	from.answers[body.Seq] = &portAnswer{body.Digest, &wire.Result{Status: body.Status, HoldId: body.HoldId, Token: body.Token, Count: body.Count}}
	return nil
}

func (d *Model) loadClaim(body *wire.ClaimRecord) error {
	c := &Claim{
		ID: body.Id, Session: body.SessionId, Owner: body.Owner, Seq: body.Seq, Value: body.Value,
		WaitMs: body.WaitMs, WaitForever: body.WaitForever, WaitGeneration: body.Generation, HoldGeneration: body.HoldGeneration, GraceGeneration: body.GraceGeneration,
		Token: body.Token, Granted: body.GrantedRevision, MaxHold: body.MaxHoldMs, Delay: body.LockDelayMs, Tokens: body.Tokens, Idle: body.IdleMs,
		Revoked: body.Revocation, Over: body.DelayGeneration != 0, notify: body.Notify, wanted: body.Wanted,
		queuedAt: body.QueuedUnixMs, grantedAt: body.GrantedUnixMs, delayedAt: body.DelayedUnixMs,
	}
	if c.Token != 0 {
		c.Count = body.Again + 1
	}
	if u := body.Upgrade; u != nil {
		c.Upgrade = &Upgrade{Seq: u.Seq, Generation: body.Generation, WaitMs: u.WaitMs, WaitForever: u.WaitForever, queuedAt: u.QueuedUnixMs}
	}
	for _, l := range body.Locks {
		known := d.Locks[l.Name]
		if known == nil {
			return fmt.Errorf("claim %d is for lock %q, which there is not", c.ID, l.Name)
		}
		l = proto.CloneOf(l)
		l.Limit = known.Limit
		c.Locks = append(c.Locks, l)
	}
	d.add(c)
	return nil
}

func (d *Model) loadAnswer(body *wire.OutcomeRecord) error {
	s := d.Session(body.SessionId)
	if s == nil {
		return fmt.Errorf("an outcome is of session %d, which there is not", body.SessionId)
	}
	a := &Answer{Session: s.ID, Seq: body.Seq, Digest: body.Digest, Waited: body.Waited, Said: &wire.Result{
		Status: body.Status, Revision: body.Revision, HoldId: body.HoldId, Token: body.Token, Count: body.Count, Cycle: body.Cycle,
	}}
	d.Answers, s.shown = append(d.Answers, a), append(s.shown, a)
	return nil
}
