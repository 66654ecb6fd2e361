package fsm

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Restore reads a snapshot for a program that understands feature levels up to level. It trusts nothing:
// it checks the size of each record before it allocates memory, the checksum over all records, and the
// resulting state against every invariant. It returns ErrUpgrade for an intact snapshot of a higher
// level, ErrMalformed for anything else that is not a snapshot, or the reader's error.
func Restore(r io.Reader, level uint32) (*Machine, error) {
	restoring := &restoring{
		m:  New(level),
		in: &recordReader{r: bufio.NewReaderSize(r, 64<<10), sum: sha256.New()},
	}
	if err := restoring.run(); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	if restoring.upgrade != nil {
		return nil, fmt.Errorf("snapshot: %w", restoring.upgrade)
	}
	m := restoring.m
	m.commit()
	if err := m.Check(); err != nil {
		return nil, fmt.Errorf("snapshot: %w: %v", ErrMalformed, err)
	}
	return m, nil
}

// restoring is a snapshot that is being read into a machine.
type restoring struct {
	m  *Machine
	in *recordReader
	// locks maps names to the locks of m, for claims to find. It is created with the first claim, when
	// all locks have been read.
	locks map[string]*lock
	// upgrade is set if the rest is read only for its checksum.
	upgrade error
	// kind and key are those of the last record; both must ascend.
	kind int
	key  recordKey
}

// recordKey is the key of a record within its kind.
type recordKey struct {
	a, b uint64
	name string
}

func (k recordKey) compare(other recordKey) int {
	return cmp.Or(cmp.Compare(k.name, other.name), cmp.Compare(k.a, other.a), cmp.Compare(k.b, other.b))
}

func (r *restoring) run() error {
	for {
		record, err := r.in.next()
		if err != nil {
			return err
		}
		if trailer, ok := record.Record.(*wire.SnapshotRecord_Trailer); ok {
			return r.in.finish(trailer.Trailer)
		}
		if r.upgrade != nil {
			continue
		}
		if err := r.add(record); err != nil {
			return fmt.Errorf("%w: record %d: %w", ErrMalformed, r.in.records, err)
		}
	}
}

// add adds one record to the machine.
func (r *restoring) add(record *wire.SnapshotRecord) error {
	if r.kind == 0 {
		if header := record.GetHeader(); header != nil {
			return r.header(header)
		}
		return errors.New("the header is missing")
	}
	switch body := record.Record.(type) {
	case *wire.SnapshotRecord_Member:
		return r.member(body.Member)
	case *wire.SnapshotRecord_Session:
		return r.session(body.Session)
	case *wire.SnapshotRecord_Lock:
		return r.lock(body.Lock)
	case *wire.SnapshotRecord_Claim:
		return r.claim(body.Claim)
	case *wire.SnapshotRecord_Outcome:
		return r.outcome(body.Outcome)
	case *wire.SnapshotRecord_Audit:
		if body.Audit.Imported != nil {
			r.m.imported.load(body.Audit)
			return r.ascend(8, recordKey{a: body.Audit.Id})
		}
		r.m.audit.load(body.Audit)
		return r.ascend(7, recordKey{a: body.Audit.Id})
	case *wire.SnapshotRecord_RemovedMember:
		r.m.removed.load(body.RemovedMember)
		return r.ascend(9, recordKey{a: body.RemovedMember.Revision})
	case *wire.SnapshotRecord_Token:
		r.access().tokens = append(r.access().tokens, body.Token)
		return r.ascend(10, recordKey{name: body.Token.GetInfo().GetId()})
	case *wire.SnapshotRecord_Policy:
		return r.policy(body.Policy)
	case *wire.SnapshotRecord_KeySender:
		r.m.keySenders.load(keySender{body.KeySender.NodeId, body.KeySender.Boot, body.KeySender.AckedBelow})
		return r.ascend(12, recordKey{name: body.KeySender.NodeId})
	case *wire.SnapshotRecord_KeyResult:
		return r.keyResult(body.KeyResult)
	}
	return errors.New("of a kind that cannot stand here")
}

// ascend returns an error for a record that is out of order or a duplicate.
func (r *restoring) ascend(kind int, key recordKey) error {
	if kind < r.kind || kind == r.kind && key.compare(r.key) <= 0 {
		return errors.New("out of order")
	}
	r.kind, r.key = kind, key
	return nil
}

func (r *restoring) header(h *wire.SnapshotHeader) error {
	r.kind = 1
	if h.Version > snapshotVersion || h.Level > r.m.level {
		r.upgrade = fmt.Errorf("%w: it is of format %d and level %d, this node reads format %d and level %d", ErrUpgrade, h.Version, h.Level, snapshotVersion, r.m.level)
		return nil
	}
	if h.Version == 0 {
		return errors.New("format 0")
	}
	r.m.state = scalars{
		index:       h.AppliedIndex,
		clusterID:   h.ClusterId,
		lineage:     h.Lineage,
		level:       h.Level,
		revision:    h.Revision,
		token:       h.Token,
		term:        h.Term,
		leaderID:    h.LeaderId,
		lastSession: h.LastSessionId,
		lastLock:    h.LastLockId,
		lastAudit:   h.LastAuditId,
		settings:    h.Settings,
		discarded:   h.Discarded,
		suspended:   h.GrantsSuspended,
		firstAct:    h.FirstAct,
		starts:      h.TermStarts,

		sessionFloor: h.SessionFloor,
		acknowledged: h.AlarmsAcknowledged,
		backup:       h.LastBackup,
	}
	if h.PolicyRevision != 0 {
		r.access().revision = h.PolicyRevision
	}
	if len(h.Certified) > 0 {
		r.access().certified = h.Certified
	}
	return validTermStarts(h)
}

// validTermStarts returns an error unless terms and their revisions increase up to the present ones.
func validTermStarts(h *wire.SnapshotHeader) error {
	term, revision := uint64(0), uint64(0)
	for _, start := range h.TermStarts {
		if start.GetTerm() <= term || start.GetRevision() <= revision {
			return errors.New("the beginnings of its terms are out of order")
		}
		term, revision = start.Term, start.Revision
	}
	if term > h.Term || revision > h.Revision || len(h.TermStarts) > maxTermStarts {
		return errors.New("the beginnings of its terms are not those of its term")
	}
	return nil
}

func (r *restoring) member(member *wire.Member) error {
	r.m.members.load(member)
	return r.ascend(2, recordKey{name: member.Id})
}

func (r *restoring) session(body *wire.SessionRecord) error {
	s := &session{
		id:          body.Id,
		secretHash:  string(body.SecretHash),
		ttl:         body.TtlMs,
		generation:  body.Generation,
		client:      body.Client,
		opened:      body.OpenedUnixMs,
		ackedBelow:  body.AckedBelow,
		leased:      body.Leased,
		unconfirmed: body.Unconfirmed,
		identity:    r.m.enter(body.Identity),

		searchAllowance: uint16(min(body.SearchAllowance, maxSearch+1)), // Check refuses maxSearch+1
	}
	if len(body.OwnerValue) > 0 || body.RemainingMs != 0 {
		s.key = &key{value: string(body.OwnerValue), remaining: body.RemainingMs}
	}
	r.m.sessions.load(s)
	r.m.charge(s, s.unitsAlone())
	if s.secretHash != "" {
		r.m.nonces.load(nonce{s.secretHash, body.Id})
	}
	return r.ascend(3, recordKey{a: body.Id})
}

// access returns the access of the machine, for adding to it.
func (r *restoring) access() *Access {
	if r.m.state.access == nil {
		r.m.state.access = &Access{}
	}
	return r.m.state.access
}

func (r *restoring) policy(policy *wire.Policy) (err error) {
	r.access().policy = policy
	if r.access().rights, err = rights.Compile(policy); err != nil {
		return err
	}
	r.m.countBelow()
	return r.ascend(11, recordKey{})
}

func (r *restoring) outcome(body *wire.OutcomeRecord) error {
	s, ok := r.m.sessions.get(body.SessionId)
	if !ok {
		return fmt.Errorf("an outcome of session %d, which is not there", body.SessionId)
	}
	o := outcome{
		seq:      body.Seq,
		digest:   body.Digest,
		status:   body.Status,
		refusal:  refusalOf(body.Message, body.Cycle),
		revision: body.Revision,
		holdID:   body.HoldId,
		token:    body.Token,
		count:    body.Count,
		waited:   body.Waited,
	}
	r.m.state.bytes += o.units()
	r.m.editAccount(s.identity).used.Bytes += o.units()
	r.m.editWindow(s).set(o)
	return r.ascend(6, recordKey{a: body.SessionId, b: body.Seq})
}

func (r *restoring) keyResult(body *wire.KeyResultRecord) error {
	from, ok := r.m.keySenders.get(body.NodeId)
	if !ok {
		return fmt.Errorf("the result of a request of node %q, which has sent none", body.NodeId)
	}
	r.m.keyResults.load(&keyResult{
		keyRequest: keyRequest{from.node, body.Seq}, digest: body.Digest,
		status: body.Status, holdID: body.HoldId, token: body.Token, count: body.Count,
	})
	return r.ascend(13, recordKey{name: body.NodeId, a: body.Seq})
}

// recordReader reads and hashes records.
type recordReader struct {
	r       *bufio.Reader
	sum     hash.Hash
	length  []byte
	buffer  []byte
	decoder wire.SnapshotDecoder
	records uint64
}

// next returns the next record. Messages of a lock or a claim in it are valid only until the next call.
func (i *recordReader) next() (*wire.SnapshotRecord, error) {
	length, err := i.readLength()
	if err != nil {
		return nil, err
	}
	if uint64(cap(i.buffer)) < length {
		i.buffer = make([]byte, length)
	}
	i.buffer = i.buffer[:length]
	if _, err := io.ReadFull(i.r, i.buffer); err != nil {
		return nil, broken("a record", err)
	}
	i.records++
	record, err := i.decoder.Decode(i.buffer)
	if err != nil {
		return nil, fmt.Errorf("%w: record %d: %v", ErrMalformed, i.records, err)
	}
	if record.GetTrailer() == nil {
		i.length = binary.AppendUvarint(i.length[:0], length)
		i.sum.Write(i.length)
		i.sum.Write(i.buffer)
	}
	return record, nil
}

// readLength reads the length of a record. It distinguishes a record that is too long from a
// reader that failed.
func (i *recordReader) readLength() (uint64, error) {
	start, err := i.r.Peek(binary.MaxVarintLen64)
	length, n := binary.Uvarint(start)
	switch {
	case n == 0 && err != nil:
		return 0, broken("the length of a record", err)
	case n <= 0 || length > maxRecordBytes:
		return 0, fmt.Errorf("%w: record %d has more than %d bytes", ErrMalformed, i.records+1, maxRecordBytes)
	}
	_, err = i.r.Discard(n)
	return length, err
}

// broken distinguishes a truncated snapshot from a reader that failed.
func broken(what string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends within %s: truncated", ErrMalformed, what)
	}
	return fmt.Errorf("read %s: %w", what, err)
}

// finish compares the trailer with the records read, and returns an error if anything follows it.
func (i *recordReader) finish(trailer *wire.SnapshotTrailer) error {
	if !bytes.Equal(trailer.GetSha256(), i.sum.Sum(nil)) {
		return fmt.Errorf("%w: the checksum does not match: the file is damaged", ErrMalformed)
	}
	if trailer.Records != i.records-1 {
		return fmt.Errorf("%w: %d records, the trailer counts %d", ErrMalformed, i.records-1, trailer.Records)
	}
	if _, err := i.r.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: something follows the trailer", ErrMalformed)
	}
	return nil
}
