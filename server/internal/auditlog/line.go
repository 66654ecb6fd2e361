package auditlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Kinds of lines.
const (
	// kindAct is an audit record. Its fields are those of AuditRecord.
	kindAct = "ACT"
	// kindLocal is an act that this node has performed without a leader, so no audit record has it.
	kindLocal = "LOCAL"
	// kindDenied is a refused request or caller.
	kindDenied = "DENIED"
	// kindMissing says that the node does not know the records between two.
	kindMissing = "MISSING"
	// kindDropped says that lines were dropped because the disk was too slow.
	kindDropped = "DROPPED"
	// kindOpened says that the node opened the file.
	kindOpened = "OPENED"
)

// position is the last audit record in the file.
type position struct {
	cluster string
	// id is that of the record, revision the revision at which it was made. 0 is before the first one.
	id, revision uint64
}

// head begins every line, in this order.
type head struct {
	Kind      string `json:"kind"`
	ClusterID string `json:"clusterId"`
	NodeID    string `json:"nodeId"`
}

// note is a line that is no audit record. Numbers of 64 bits are texts, as in the JSON of records.
type note struct {
	head
	WallUnixMs int64 `json:"wallUnixMs,string"`
	// AfterID and AfterRevision are those of the last record before the line.
	AfterID       uint64 `json:"afterId,string"`
	AfterRevision uint64 `json:"afterRevision,string"`
	// MISSING: the next record.
	BeforeID       uint64 `json:"beforeId,omitempty,string"`
	BeforeRevision uint64 `json:"beforeRevision,omitempty,string"`
	// DROPPED: how many lines.
	Count uint64 `json:"count,omitempty,string"`
	// LOCAL: the fields of AuditRecord, without an id.
	Act json.RawMessage `json:"act,omitempty"`
	*denied
}

// denied is what a line about a denial adds.
type denied struct {
	Caller  json.RawMessage `json:"caller"`
	Request string          `json:"request,omitempty"`
	Status  string          `json:"status"`
	Message string          `json:"message"`
	// Suppressed counts the denials of the same caller since its last line. SuppressedOthers counts denials of callers
	// that the limiter has forgotten.
	Suppressed       uint64 `json:"suppressed,omitempty,string"`
	SuppressedOthers uint64 `json:"suppressedOthers,omitempty,string"`
}

// newDenied returns the line's part about a denial.
func newDenied(d access.Denial, s suppressed) *denied {
	caller, err := compactJSON(d.Caller)
	if err != nil {
		caller = json.RawMessage("{}") // a text that is not UTF-8, which no verified caller has
	}
	return &denied{Caller: caller, Request: d.Request, Status: d.Status.String(), Message: d.Message, Suppressed: s.same, SuppressedOthers: s.others}
}

// actLine returns the line of a record.
func actLine(h head, record *wire.AuditRecord) ([]byte, error) {
	h.Kind = kindAct
	begin, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	body, err := compactJSON(record)
	if err != nil {
		return nil, fmt.Errorf("audit record %d: %w", record.GetId(), err)
	}
	begin[len(begin)-1] = ','
	return append(append(begin, body[1:]...), '\n'), nil
}

func noteLine(n note) []byte {
	line, err := json.Marshal(n)
	if err != nil {
		panic(err) // it has only texts and numbers
	}
	return append(line, '\n')
}

// compactJSON returns the protojson of a message in one line. protojson itself varies its spaces.
func compactJSON(m proto.Message) (json.RawMessage, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	err = json.Compact(&compact, text)
	return compact.Bytes(), err
}

// parse returns the position after a line of a file. ok is false if it is no line of one.
func parse(line []byte) (at position, ok bool) {
	var l struct {
		head
		ID            string          `json:"id"`
		Revision      string          `json:"revision"`
		AfterID       string          `json:"afterId"`
		AfterRevision string          `json:"afterRevision"`
		Imported      json.RawMessage `json:"imported"`
	}
	if json.Unmarshal(line, &l) != nil || l.Kind == "" {
		return position{}, false
	}
	id, revision := l.AfterID, l.AfterRevision
	if l.Kind == kindAct {
		id, revision = l.ID, l.Revision
	}
	if l.Imported != nil { // its revision is of another cluster
		revision = ""
	}
	at.cluster = l.ClusterID
	var err error
	if at.id, err = strconv.ParseUint(id, 10, 64); err != nil {
		return position{}, false
	}
	at.revision, _ = strconv.ParseUint(revision, 10, 64)
	return at, true
}

// tornLine returns how many bytes follow the last complete line: a line that was cut when the node was killed. ours is
// false if these bytes are not the beginning of a line of this package.
func tornLine(tail []byte) (torn int, ours bool) {
	rest := tail[bytes.LastIndexByte(tail, '\n')+1:]
	begin := []byte(`{"kind":"`)
	return len(rest), bytes.HasPrefix(rest, begin) || bytes.HasPrefix(begin, rest)
}

// lastLine returns the position after the last line that is one of this package, and false if none is.
func lastLine(lines []byte) (at position, ok bool) {
	for len(lines) > 0 {
		start := bytes.LastIndexByte(lines[:len(lines)-1], '\n') + 1
		if at, ok := parse(lines[start:]); ok {
			return at, true
		}
		lines = lines[:start]
	}
	return position{}, false
}
