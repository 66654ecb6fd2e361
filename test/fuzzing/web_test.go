package fuzzing

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/quorumlock/quorumlock/test/generate"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// procedures returns the methods of the HTTP port, from the schema.
func procedures() (all []protoreflect.MethodDescriptor) {
	services := wire.File_quorumlock_v1_service_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			all = append(all, services.Get(i).Methods().Get(j))
		}
	}
	return all
}

// FuzzHTTP sends arbitrary conversations to the HTTP port, in JSON and in protobuf.
func FuzzHTTP(f *testing.F) {
	for _, data := range seeds()[:corpus] {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { talkHTTP(t, data, nil) })
}

func talkHTTP(t *testing.T, data []byte, tally *tally) {
	s := generate.NewSource(data)
	inBubble(t, tally, s.OneIn(8), func(g *target) {
		host := g.net.Host("client")
		transport := &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return host.Dial(ctx, addr) }}
		defer transport.CloseIdleConnections()
		c := &httpClient{target: g, http: &http.Client{Transport: transport}}
		all := procedures()
		for n := 0; s.More() && n < mostRequests; n++ {
			method := all[s.Below(len(all))]
			c.exchange(s, method)
			g.check(string(method.FullName()))
		}
	})
}

type httpClient struct {
	*target
	http *http.Client
}

// made returns a new message of the type.
func made(t *testing.T, of protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(of.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return kind.New().Interface()
}

// exchange posts one request and reads the answer; for a stream, what arrives before the timeout.
func (c *httpClient) exchange(s *generate.Source, method protoreflect.MethodDescriptor) {
	c.t.Helper()
	req := made(c.t, method.Input())
	generate.Messages(s, c.known, req.ProtoReflect())
	contentType, marshal, unmarshal := "application/json", protojson.Marshal, protojson.Unmarshal
	if !method.IsStreamingServer() && s.Below(2) == 0 {
		contentType, marshal, unmarshal = "application/proto", proto.Marshal, proto.Unmarshal
	}
	body, err := marshal(req)
	if err != nil {
		c.t.Fatal(err)
	}
	if s.OneIn(24) && len(body) > 0 {
		body[s.Below(len(body))] ^= 1 << s.Below(8)
	}
	kind := string(method.FullName())
	code, data := c.post("/"+string(method.Parent().FullName())+"/"+string(method.Name()), contentType, body)
	if code == 0 {
		if !waits(req.ProtoReflect()) {
			c.t.Fatalf("%s was not answered", kind)
		}
		return // the caller gave up
	}
	answer := made(c.t, method.Output())
	status := c.read(method, code, data, answer, unmarshal)
	if c.answered(kind, status, string(data)) {
		c.known.Learn(req.ProtoReflect(), answer.ProtoReflect())
	}
}

// mostAnswer is the maximum number of bytes read of an answer.
const mostAnswer = 8 << 20

func (c *httpClient) post(path, contentType string, body []byte) (code int, data []byte) {
	c.t.Helper()
	ctx, stop := context.WithTimeout(c.t.Context(), 3*time.Second)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://n1:7402"+path, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := c.http.Do(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return 0, nil
	}
	if err != nil {
		c.t.Fatalf("%s: %v", path, err)
	}
	defer resp.Body.Close()
	data, err = io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		c.t.Fatalf("%s: %v after %d bytes", path, err, len(data))
	}
	return resp.StatusCode, data
}

// read returns the status of an answer. If the port itself refuses, there is only a code.
func (c *httpClient) read(method protoreflect.MethodDescriptor, code int, data []byte, answer proto.Message, unmarshal func([]byte, proto.Message) error) wire.Status_Code {
	c.t.Helper()
	switch {
	case code == http.StatusOK && method.IsStreamingServer():
		if first, _, ok := bytes.Cut(data, []byte("\n")); ok && protojson.Unmarshal(first, answer) == nil {
			return statusOf(answer)
		}
		return wire.Status_OK
	case code == http.StatusOK:
		if err := unmarshal(data, answer); err != nil {
			c.t.Fatalf("%s: %v: %q", method.FullName(), err, data)
		}
		return statusOf(answer)
	case code == http.StatusInternalServerError, !bytes.Contains(data, []byte(`"code":`)):
		c.t.Fatalf("%s: HTTP status %d: %q", method.FullName(), code, data)
	}
	for _, status := range wire.Status_Code_value {
		if name := wire.Status_Code(status).String(); bytes.Contains(data, []byte(`"status":"`+name+`"`)) {
			return wire.Status_Code(status)
		}
	}
	return wire.Status_INVALID_ARGUMENT
}

func statusOf(answer proto.Message) wire.Status_Code {
	if a, ok := answer.(interface{ GetStatus() wire.Status_Code }); ok {
		return a.GetStatus()
	}
	return wire.Status_OK
}
