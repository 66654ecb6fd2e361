package virtual_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// procedure is a procedure of the HTTP port.
type procedure struct {
	path    string
	input   string
	output  protoreflect.FullName
	streams bool
}

// proceduresOf returns all procedures by the name of their request.
func proceduresOf() map[string]procedure {
	all := map[string]procedure{}
	services := wire.File_quorumlock_v1_service_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			m := services.Get(i).Methods().Get(j)
			input := string(m.Input().Name())
			all[input] = procedure{fmt.Sprintf("/%s/%s", services.Get(i).FullName(), m.Name()), input, m.Output().FullName(), m.IsStreamingServer()}
		}
	}
	return all
}

// overHTTP sends every request that can have that number over HTTP, one after the other.
func (p *party) overHTTP(at *node, n number) {
	p.g.t.Helper()
	before, denied := p.g.denials(), 0
	for name, proc := range p.g.procedures {
		request := proto.CloneOf(p.examples[name])
		kind := kindOf(request)
		if kind == "" && n != none || n == pending { // a retry of what waits would wait
			continue
		}
		session, seq, exists := p.numberOf(kind, n)
		if !exists {
			continue
		}
		if kind != "" && n != none {
			p.number(request, session, seq, n)
		}
		may, known := mayAsk(p.name, request)
		if may && proc.streams {
			continue // a watch does not end
		}
		want := httpVerdict(may && known, request, n)
		got, _ := p.post(at, proc, request)
		p.judge(fmt.Sprintf("%s posts %s with %v to %s", p.name, name, n, at.id), p.g.overHTTP(want, p.outcomes[n][kind]), n, kind, got)
		if want.status == wire.Status_PERMISSION_DENIED {
			denied++
		}
	}
	if got := p.g.denials() - before; got != denied {
		p.g.t.Errorf("%s with %v over HTTP to %s: %d denials were reported, want %d", p.name, n, at.id, got, denied)
	}
}

// overHTTP returns the verdict on an answer without ids: HTTP has no body for an outcome that is an error there.
func (g *governed) overHTTP(want verdict, first *wire.Result) verdict {
	if want.outcome {
		return verdict{status: first.GetStatus()}
	}
	return want
}

// number gives a request credentials and a number.
func (p *party) number(request proto.Message, session, seq uint64, n number) {
	secret := p.secret("A")
	if n == elsewhere {
		secret = p.secret("B")
	}
	m := request.ProtoReflect()
	fields := m.Descriptor().Fields()
	m.Set(fields.ByName("session"), protoreflect.ValueOfMessage((&wire.Credentials{SessionId: session, Secret: []byte(secret)}).ProtoReflect()))
	m.Set(fields.ByName("seq"), protoreflect.ValueOfUint64(seq))
}

// post calls a procedure. The result has the status, and the message of an error.
func (p *party) post(at *node, proc procedure, request proto.Message) (*wire.Result, proto.Message) {
	t := p.g.t
	t.Helper()
	body, err := proto.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	kind := "application/proto"
	if proc.streams {
		kind = "application/connect+proto"
		body = append([]byte{0, 0, 0, byte(len(body) >> 8), byte(len(body))}, body...)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+at.host+":7402"+proc.path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Connect-Protocol-Version", "1")
	req.Header.Set("Authorization", "Bearer "+p.token)
	resp, err := p.g.http.Do(req)
	if err != nil {
		t.Fatalf("%s posts %s: %v", p.name, proc.path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		return problemOf(data), nil
	}
	if proc.streams { // only a refusal is read: its one frame is the error
		var end struct {
			Error json.RawMessage `json:"error"`
		}
		_ = json.Unmarshal(data[min(5, len(data)):], &end)
		return problemOf(end.Error), nil
	}
	output, err := protoregistry.GlobalTypes.FindMessageByName(proc.output)
	if err != nil {
		t.Fatal(err)
	}
	answer := output.New().Interface()
	if err := proto.Unmarshal(data, answer); err != nil {
		t.Fatal(err)
	}
	res := &wire.Result{Status: wire.Status_OK}
	if with, ok := answer.(interface{ GetStatus() wire.Status_Code }); ok && with.GetStatus() != wire.Status_GRANTED {
		res.Status = with.GetStatus()
	}
	return res, answer
}

// problemOf returns the status and message of an error.
func problemOf(data []byte) *wire.Result {
	var problem struct {
		Message string
		Details []struct{ Value string }
	}
	_ = json.Unmarshal(data, &problem)
	res, detail := &wire.Result{Status: wire.Status_UNSPECIFIED, Message: problem.Message}, &wire.ErrorDetail{}
	if len(problem.Details) > 0 {
		if raw, err := base64.RawStdEncoding.DecodeString(problem.Details[0].Value); err == nil && proto.Unmarshal(raw, detail) == nil {
			res.Status = detail.GetStatus()
		}
	}
	if res.Status == wire.Status_UNSPECIFIED {
		res.Message = string(data)
	}
	return res
}
