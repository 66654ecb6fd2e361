package fsm

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// maxAudit bounds the audit records of the cluster's own operators, maxImported those that restores added.
	// Each kind drops records of its own, so imported records never displace those of this cluster: see addAudit.
	maxAudit    = 256
	maxImported = 256
	// maxRestoredAudit bounds the records that one restore may add, maxRestoredBytes their total size.
	maxRestoredAudit = maxAudit + maxImported
	maxRestoredBytes = 128 << 10
	// maxClientNameBytes bounds the client's name in a record, maxActNameBytes the names of the locks of a hold
	// together.
	maxClientNameBytes = 256
	maxActNameBytes    = 2 << 10
	// MaxOutcomeBytes bounds the message of an outcome.
	MaxOutcomeBytes = 512
	// maxWallMs is the end of the year 9999, in Unix milliseconds.
	maxWallMs = 253_402_300_799_999
)

// validReason refuses an operator action without a reason, or with texts that cannot be stored.
func validReason(act wire.Act) *wire.Result {
	if err := wire.ValidReason(act); err != nil {
		return answer(wire.Status_INVALID_ARGUMENT, err.Error())
	}
	return nil
}

// validAudit refuses a record that no operator action can have produced.
func validAudit(record *wire.AuditRecord) *wire.Result {
	if err := wire.ValidActTexts(record); err != nil {
		return invalid("audit record %d: %v", record.GetId(), err)
	}
	_, known := wire.AuditRecord_Action_name[int32(record.GetAction())]
	switch {
	case !known || record.GetAction() == wire.AuditRecord_UNSPECIFIED:
		return invalid("audit record %d has the action %d, which is not known", record.GetId(), record.GetAction())
	case len(record.ClientName) > maxClientNameBytes || !utf8.ValidString(record.ClientName):
		return invalid("audit record %d has a client's name that cannot be kept", record.Id)
	case record.Token > maxToken || record.Limit > maxLimit:
		return invalid("audit record %d has token %d, limit %d", record.Id, record.Token, record.Limit)
	case record.Lock != "" && wire.ValidName(record.Lock) != nil:
		return invalid("audit record %d: %v", record.Id, wire.ValidName(record.Lock))
	}
	for _, text := range []string{record.Member, record.Address, record.GetImported().GetClusterId()} {
		if len(text) > maxMemberText || wire.ValidText("a text", text) != nil {
			return invalid("audit record %d has a text that cannot be kept", record.Id)
		}
	}
	return cmp.Or(validOutcome(record), validActLocks(record), validBackupName(record.Backup), validCaller(record.Caller),
		validText("token_id", record.TokenId, tokenIDBytes), validText("the identity", record.Identity, rights.MaxIdentityBytes))
}

// validOutcome refuses an outcome that cannot be stored.
func validOutcome(record *wire.AuditRecord) *wire.Result {
	if _, known := wire.Status_Code_name[int32(record.GetOutcome())]; !known {
		return invalid("audit record %d has the outcome %d, which is not known", record.GetId(), record.GetOutcome())
	}
	return validText("the message of an outcome", record.GetMessage(), MaxOutcomeBytes)
}

// validActLocks refuses lock names that recordAbout cannot have recorded.
func validActLocks(record *wire.AuditRecord) *wire.Result {
	size := 0
	for _, name := range record.GetLocks() {
		if refusal := validName(name); refusal != nil {
			return refusal
		}
		size += len(name)
	}
	if size > maxActNameBytes || record.GetFurtherLocks() > maxLocks {
		return invalid("audit record %d has lock names of %d bytes and %d further locks: at most %d and %d are allowed", record.GetId(), size, record.GetFurtherLocks(), maxActNameBytes, maxLocks)
	}
	return nil
}

// validBackupName refuses a description of a backup that cannot be stored.
func validBackupName(b *wire.Backup) *wire.Result {
	switch {
	case len(b.GetClusterId()) > maxMemberText || wire.ValidText("cluster_id", b.GetClusterId()) != nil:
		return invalid("the backup's cluster_id must be a text of at most %d bytes", maxMemberText)
	case len(b.GetLineage()) > maxLineageBytes || wire.ValidText("lineage", b.GetLineage()) != nil:
		return invalid("the backup's lineage must be a text of at most %d bytes", maxLineageBytes)
	case len(b.GetSha256()) != 0 && len(b.GetSha256()) != sha256.Size:
		return invalid("the backup's sha256 must have %d bytes", sha256.Size)
	case b.GetToken() > maxToken:
		return invalid("the backup's token %d has more than 63 bits", b.GetToken())
	}
	return nil
}

func validRecordAct(op *wire.RecordAct) *wire.Result {
	switch op.GetAction() {
	case wire.AuditRecord_ADD_MEMBER, wire.AuditRecord_REMOVE_MEMBER, wire.AuditRecord_TRANSFER_LEADERSHIP,
		wire.AuditRecord_SAVE_SNAPSHOT, wire.AuditRecord_ACKNOWLEDGE_ALARMS, wire.AuditRecord_DRAIN_MEMBER, wire.AuditRecord_UNDRAIN_MEMBER:
	default:
		return invalid("action %d is recorded by the command that does it", op.GetAction())
	}
	if op.GetOutcome() != wire.Status_UNSPECIFIED && !outside(op.GetAction()) {
		return invalid("action %d has its outcome at once", op.GetAction())
	}
	return cmp.Or(validReason(op), validAudit(actOf(op)))
}

func actOf(op *wire.RecordAct) *wire.AuditRecord {
	return &wire.AuditRecord{
		Action: op.Action, Operator: op.Operator, Reason: op.Reason, Ticket: op.Ticket, Member: op.Member, Address: op.Address,
		Outcome: op.Outcome, Message: op.Message, BegunRevision: op.BegunRevision,
	}
}

// outside reports whether an act takes place outside the state machine, which therefore cannot know its outcome.
func outside(act wire.AuditRecord_Action) bool {
	switch act {
	case wire.AuditRecord_ADD_MEMBER, wire.AuditRecord_REMOVE_MEMBER, wire.AuditRecord_TRANSFER_LEADERSHIP, wire.AuditRecord_SAVE_SNAPSHOT:
		return true
	}
	return false
}

// recordAct records what an operator is about to do to the cluster itself, or what came of it. It executes the acts that
// change nothing but the state.
func (m *Machine) recordAct(op *wire.RecordAct) *wire.Result {
	switch op.Action {
	case wire.AuditRecord_DRAIN_MEMBER, wire.AuditRecord_UNDRAIN_MEMBER:
		return m.setDrained(op)
	case wire.AuditRecord_ACKNOWLEDGE_ALARMS:
		m.state.acknowledged = m.state.revision
	}
	m.record(actOf(op))
	return answer(wire.Status_OK, "")
}

// record records an operator action that is being executed. Refused requests are not recorded here: they change
// nothing, so whoever sends many of them must not displace records. Each node logs those that it refuses.
func (m *Machine) record(act *wire.AuditRecord) {
	m.state.lastAudit++
	act.Id, act.Revision, act.WallUnixMs, act.Caller = m.state.lastAudit, m.state.revision, m.wall, m.author()
	if !outside(act.Action) {
		act.Outcome = wire.Status_OK
	}
	m.addAudit(&m.audit, act, maxAudit)
	switch act.Action {
	case wire.AuditRecord_ADD_MEMBER, wire.AuditRecord_REMOVE_MEMBER, wire.AuditRecord_TRANSFER_LEADERSHIP,
		wire.AuditRecord_DRAIN_MEMBER, wire.AuditRecord_UNDRAIN_MEMBER:
	default:
		m.state.firstAct = cmp.Or(m.state.firstAct, m.state.revision)
	}
}

// addAudit adds a record. If there are too many, it drops the oldest of the identity that has the most, so no identity
// can displace the records of another one that has fewer.
func (m *Machine) addAudit(records *table[uint64, *wire.AuditRecord], act *wire.AuditRecord, most int) {
	records.put(act)
	m.emit(&wire.Event{Type: wire.Event_AUDITED, Audit: act})
	if records.len() > most {
		all := make([]*wire.AuditRecord, 0, records.len())
		records.each(0, func(r *wire.AuditRecord) bool {
			all = append(all, r)
			return true
		})
		records.delete(all[dispensable(all)].Id)
	}
}

// dispensable returns the index of the record to drop: the oldest of the identity that has the most records. Of
// identities with equally many, it is the one whose oldest record is the oldest. records are ordered by id and not
// empty. The identity is the verified one: a name that requests could choose would not stop anybody.
func dispensable(records []*wire.AuditRecord) int {
	counts := map[string]int{}
	for _, r := range records {
		counts[r.GetCaller().GetIdentity()]++
	}
	oldest := 0
	for i, r := range records {
		if counts[r.GetCaller().GetIdentity()] > counts[records[oldest].GetCaller().GetIdentity()] {
			oldest = i
		}
	}
	return oldest
}

// importAudit adds the records of a backup. They get ids of this cluster, right before that of the restore's own
// record, and state where they come from.
func (m *Machine) importAudit(op *wire.RestoreBackup) {
	restore := m.state.lastAudit + uint64(len(op.Audit)) + 1
	for _, act := range op.Audit {
		act = proto.CloneOf(act)
		origin := act.Imported
		if origin == nil {
			origin = &wire.AuditImport{ClusterId: op.Backup.GetClusterId(), Id: act.Id}
		}
		m.state.lastAudit++
		act.Id = m.state.lastAudit
		act.Imported = &wire.AuditImport{ClusterId: origin.ClusterId, Id: origin.Id, RestoreId: restore}
		m.addAudit(&m.imported, act, maxImported)
	}
}

// RestorableAudit returns those of a backup's audit records that one restore may add, by id. It drops records like
// addAudit until they fit.
func RestorableAudit(records []*wire.AuditRecord) []*wire.AuditRecord {
	records = slices.SortedFunc(slices.Values(records), func(a, b *wire.AuditRecord) int { return cmp.Compare(a.GetId(), b.GetId()) })
	weigh := func(r *wire.AuditRecord) int { return proto.Size(r) + 8 }
	size := 0
	for _, r := range records {
		size += weigh(r)
	}
	for len(records) > maxRestoredAudit || size > maxRestoredBytes {
		drop := dispensable(records)
		size -= weigh(records[drop])
		records = slices.Delete(records, drop, drop+1)
	}
	return records
}

// AuditAfter returns the audit records of all kinds with ids above that one, by id. They are shared with the state and
// must not be changed.
func (m *Machine) AuditAfter(id uint64) []*wire.AuditRecord {
	var after []*wire.AuditRecord
	for _, records := range []*table[uint64, *wire.AuditRecord]{&m.imported, &m.audit} {
		records.each(id+1, func(r *wire.AuditRecord) bool {
			after = append(after, r)
			return true
		})
	}
	slices.SortFunc(after, func(a, b *wire.AuditRecord) int { return cmp.Compare(a.Id, b.Id) })
	return after
}

// recordAbout is record for an action on a claim.
func (m *Machine) recordAbout(c *claim, act *wire.AuditRecord) {
	act.Lock, act.HoldId, act.Token, act.SessionId = c.wants()[0].lock.name, c.id, c.token, c.session
	if s, ok := m.sessions.get(c.session); ok {
		act.ClientName = shortened(s.client.GetName())
	}
	if wants := c.wants(); len(wants) > 1 {
		act.Locks, act.FurtherLocks = namesForRecord(wants)
	}
	m.record(act)
}

// namesForRecord returns the names of locks for which a record has room, and the number of the others.
func namesForRecord(wants []want) (names []string, further uint32) {
	size := 0
	for _, w := range wants {
		if size += len(w.lock.name); size > maxActNameBytes {
			return names, uint32(len(wants) - len(names))
		}
		names = append(names, w.lock.name)
	}
	return names, 0
}

// shortened cuts a client's text to the length that a record allows.
func shortened(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxClientNameBytes)], "")
}
