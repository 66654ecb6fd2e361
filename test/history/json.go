package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// line is a record as JSON. Times are in nanoseconds since the beginning.
type line struct {
	BeginUnixNano int64      `json:"begin_unix_nano,omitempty"`
	Op            *opLine    `json:"op,omitempty"`
	Push          *pushLine  `json:"push,omitempty"`
	Key           *keyLine   `json:"key,omitempty"`
	Hold          *holdLine  `json:"hold,omitempty"`
	Mark          *eventLine `json:"mark,omitempty"`
	Fault         *eventLine `json:"fault,omitempty"`
}

// opLine repeats status, token and revision for people and simple tools.
type opLine struct {
	Client   string          `json:"client"`
	Conn     uint64          `json:"conn,omitempty"`
	HTTP     bool            `json:"http,omitempty"`
	Kind     string          `json:"kind"`
	Session  uint64          `json:"session,omitempty"`
	Seq      uint64          `json:"seq,omitempty"`
	Call     int64           `json:"call"`
	Return   *int64          `json:"return,omitempty"`
	Outcome  string          `json:"outcome"`
	Status   string          `json:"status,omitempty"`
	Token    uint64          `json:"token,omitempty,string"`
	Revision uint64          `json:"revision,omitempty"`
	Request  json.RawMessage `json:"request,omitempty"`
	Response json.RawMessage `json:"response,omitempty"`
}

type pushLine struct {
	Client string          `json:"client"`
	Conn   uint64          `json:"conn,omitempty"`
	At     int64           `json:"at"`
	Push   json.RawMessage `json:"push"`
}

type keyLine struct {
	Client  string    `json:"client"`
	Conn    uint64    `json:"conn"`
	Action  KeyAction `json:"action"`
	Lock    string    `json:"lock"`
	Value   string    `json:"value"`
	TTL     int64     `json:"ttl,omitempty"`
	Call    int64     `json:"call"`
	Return  *int64    `json:"return,omitempty"`
	Outcome string    `json:"outcome"`
	Done    bool      `json:"done,omitempty"`
	Token   uint64    `json:"token,omitempty,string"`
	Reply   string    `json:"reply,omitempty"`
}

type holdLine struct {
	Client    string  `json:"client"`
	Session   uint64  `json:"session"`
	ID        uint64  `json:"id"`
	Token     uint64  `json:"token,string"`
	Revision  uint64  `json:"revision"`
	Value     string  `json:"value,omitempty"`
	Locks     []Share `json:"locks"`
	Asked     int64   `json:"asked"`
	Granted   int64   `json:"granted"`
	Ended     *int64  `json:"ended,omitempty"`
	Released  bool    `json:"released,omitempty"`
	Unguarded bool    `json:"unguarded,omitempty"`
}

type eventLine struct {
	At   int64  `json:"at"`
	Text string `json:"text"`
}

// WriteTo writes the history as JSON, one record per line, after a line with the time at which it began. It
// implements io.WriterTo.
func (h *History) WriteTo(w io.Writer) (int64, error) {
	counted := &counter{w: bufio.NewWriter(w)}
	enc := json.NewEncoder(counted)
	if err := enc.Encode(line{BeginUnixNano: h.Begin.UnixNano()}); err != nil {
		return counted.n, fmt.Errorf("write history: %w", err)
	}
	for _, r := range h.Records {
		l, err := r.line()
		if err == nil {
			err = enc.Encode(l)
		}
		if err != nil {
			return counted.n, fmt.Errorf("write history: %w", err)
		}
	}
	return counted.n, counted.w.Flush()
}

type counter struct {
	w *bufio.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

func (r Record) line() (line, error) {
	switch {
	case r.Op != nil:
		l, err := r.Op.line()
		return line{Op: l}, err
	case r.Push != nil:
		push, err := jsonOf(r.Push.Push)
		return line{Push: &pushLine{r.Push.Client, r.Push.Conn, int64(r.Push.At), push}}, err
	case r.Key != nil:
		k := r.Key
		return line{Key: &keyLine{
			k.Client, k.Conn, k.Action, k.Lock, k.Value, int64(k.TTL), int64(k.Call), nanos(k.Return), k.Outcome.String(), k.Done, k.Token, k.Reply,
		}}, nil
	case r.Hold != nil:
		h := r.Hold
		return line{Hold: &holdLine{
			h.Client, h.Session, h.ID, h.Token, h.Revision, h.Value, h.Locks, int64(h.Asked), int64(h.Granted), nanos(h.Ended), h.Released, h.Unguarded,
		}}, nil
	case r.Mark != nil:
		return line{Mark: &eventLine{int64(r.Mark.At), r.Mark.What}}, nil
	case r.Fault != nil:
		return line{Fault: &eventLine{int64(r.Fault.At), r.Fault.Text}}, nil
	}
	return line{}, fmt.Errorf("an empty record")
}

func (o *Op) line() (*opLine, error) {
	request, err := jsonOf(o.Request)
	if err != nil {
		return nil, err
	}
	l := &opLine{
		Client: o.Client, Conn: o.Conn, HTTP: o.HTTP, Kind: o.Kind, Session: o.Session, Seq: o.Seq, Call: int64(o.Call), Return: nanos(o.Return),
		Outcome: o.Outcome.String(), Request: request,
	}
	if o.Response != nil {
		l.Status, l.Token, l.Revision = o.Result().GetStatus().String(), o.Result().GetToken(), o.Result().GetRevision()
		l.Response, err = jsonOf(o.Response)
	}
	return l, err
}

func jsonOf(m proto.Message) (json.RawMessage, error) { return protojson.Marshal(m) }

// nanos returns nil for Never.
func nanos(d time.Duration) *int64 {
	if d == Never {
		return nil
	}
	n := int64(d)
	return &n
}

func since(n *int64) time.Duration {
	if n == nil {
		return Never
	}
	return time.Duration(*n)
}

// Read reads what WriteTo wrote.
func Read(r io.Reader) (*History, error) {
	dec := json.NewDecoder(r)
	h := &History{}
	for n := 1; ; n++ {
		var l line
		err := dec.Decode(&l)
		if err == io.EOF {
			return h, nil
		}
		if err != nil {
			return nil, fmt.Errorf("history, line %d: %w", n, err)
		}
		if l.BeginUnixNano != 0 {
			h.Begin = time.Unix(0, l.BeginUnixNano)
			continue
		}
		record, err := l.record()
		if err != nil {
			return nil, fmt.Errorf("history, line %d: %w", n, err)
		}
		h.Records = append(h.Records, record)
	}
}

func (l line) record() (Record, error) {
	switch {
	case l.Op != nil:
		op, err := l.Op.op()
		return Record{Op: op}, err
	case l.Push != nil:
		push := &wire.Push{}
		err := protojson.Unmarshal(l.Push.Push, push)
		return Record{Push: &Push{l.Push.Client, l.Push.Conn, time.Duration(l.Push.At), push}}, err
	case l.Key != nil:
		k := l.Key
		outcome, err := outcomeNamed(k.Outcome)
		return Record{Key: &KeyRequest{
			k.Client, k.Conn, k.Action, k.Lock, k.Value, time.Duration(k.TTL), time.Duration(k.Call), since(k.Return), outcome, k.Done, k.Token, k.Reply,
		}}, err
	case l.Hold != nil:
		h := l.Hold
		return Record{Hold: &Hold{
			h.Client, h.Session, h.ID, h.Token, h.Revision, h.Value, h.Locks, time.Duration(h.Asked), time.Duration(h.Granted), since(h.Ended), h.Released, h.Unguarded,
		}}, nil
	case l.Mark != nil:
		return Record{Mark: &Mark{time.Duration(l.Mark.At), l.Mark.Text}}, nil
	case l.Fault != nil:
		return Record{Fault: &Fault{time.Duration(l.Fault.At), l.Fault.Text}}, nil
	}
	return Record{}, fmt.Errorf("neither op, push, key, hold, mark nor fault")
}

func (l *opLine) op() (*Op, error) {
	o := &Op{
		Client: l.Client, Conn: l.Conn, HTTP: l.HTTP, Kind: l.Kind, Session: l.Session, Seq: l.Seq,
		Call: time.Duration(l.Call), Return: since(l.Return), Request: &wire.Request{},
	}
	if err := protojson.Unmarshal(l.Request, o.Request); err != nil {
		return nil, err
	}
	if l.Response != nil {
		o.Response = &wire.Response{}
		if err := protojson.Unmarshal(l.Response, o.Response); err != nil {
			return nil, err
		}
	}
	var err error
	o.Outcome, err = outcomeNamed(l.Outcome)
	return o, err
}

func outcomeNamed(name string) (Outcome, error) {
	for _, outcome := range []Outcome{Unknown, OK, Fail} {
		if outcome.String() == name {
			return outcome, nil
		}
	}
	return Unknown, fmt.Errorf("outcome %q", name)
}
