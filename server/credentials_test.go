package server

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// backup returns the snapshot that any client may download.
func backup(t *testing.T, url string) []byte {
	t.Helper()
	stream, err := wireconnect.NewOperatorServiceClient(http.DefaultClient, url).SaveSnapshot(bounded(t), connect.NewRequest(&wire.SaveSnapshotRequest{Reason: "test"}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var file bytes.Buffer
	for stream.Receive() {
		file.Write(stream.Msg().GetChunk())
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// hashesIn returns the hashes of secrets in a backup, by session.
func hashesIn(t *testing.T, file []byte) map[uint64][]byte {
	t.Helper()
	hashes := map[uint64][]byte{}
	for r := bufio.NewReader(bytes.NewReader(file)); ; {
		var record wire.SnapshotRecord
		err := protodelim.UnmarshalFrom(r, &record)
		if errors.Is(err, io.EOF) {
			return hashes
		}
		if err != nil {
			t.Fatal(err)
		}
		if s := record.GetSession(); s != nil {
			hashes[s.GetId()] = s.GetSecretHash()
		}
	}
}

// takesSecret reports whether messages of that type contain a secret. It fails the test if they contain a
// hash, which no port may accept.
func takesSecret(t *testing.T, m protoreflect.MessageDescriptor, within ...protoreflect.FullName) bool {
	t.Helper()
	if slices.Contains(within, m.FullName()) {
		return false
	}
	takes := false
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if strings.Contains(string(f.Name()), "hash") {
			t.Errorf("a request has the field %v", f.FullName())
		}
		if f.Message() != nil {
			takes = takesSecret(t, f.Message(), append(within, m.FullName())...) || takes
		}
		takes = takes || f.Name() == "secret"
	}
	return takes
}

// secretsOf returns the requests that contain a secret: by field for the client port, by procedure for the
// HTTP port.
func secretsOf(t *testing.T) (names []string) {
	t.Helper()
	requests := (&wire.Request{}).ProtoReflect().Descriptor()
	for i := range requests.Fields().Len() {
		if f := requests.Fields().Get(i); f.Message() != nil && takesSecret(t, f.Message()) {
			names = append(names, string(f.Name()))
		}
	}
	services := wire.File_quorumlock_v1_service_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			if m := services.Get(i).Methods().Get(j); takesSecret(t, m.Input()) {
				names = append(names, string(services.Get(i).Name())+"/"+string(m.Name()))
			}
		}
	}
	return names
}

// target is the target of the attempts.
type target struct {
	session, hold, token uint64
	// refused are the statuses allowed for a refusal on the client port.
	refused []wire.Status_Code
}

// attempt sends a request with a secret. It returns the session of the answer, and fails the test if the
// request was refused for another reason than the secret.
type attempt func(secret []byte) (session uint64)

// attempts returns all requests that contain a secret, by name.
func attempts(t *testing.T, node *Node, at target) map[string]attempt {
	all := rpcAttempts(t, node, at)
	url := "http://" + node.Addrs().HTTP
	maps.Copy(all, sessionAttempts(t, url, at))
	maps.Copy(all, lockAttempts(t, url, at))
	maps.Copy(all, leaseAttempts(t, url, at))
	return all
}

var elsewhere = &wire.Acquire{Locks: []*wire.LockRequest{{Name: "something/else"}}}

func rpcAttempts(t *testing.T, node *Node, at target) map[string]attempt {
	ask := func(req *wire.Request) uint64 {
		t.Helper()
		res := answerOnce(t, node, req).GetResult()
		if status := res.GetStatus(); status != wire.Status_OK && status != wire.Status_GRANTED && !slices.Contains(at.refused, status) {
			t.Errorf("%T: %v", req.GetBody(), res)
		}
		return max(res.GetSession().GetSessionId(), res.GetSessionId())
	}
	return map[string]attempt{
		"open_session": func(s []byte) uint64 { return ask(opening(s)) },
		"attach":       func(s []byte) uint64 { return ask(attach(at.session, string(s))) },
		"acquire_lease": func(s []byte) uint64 {
			return ask(&wire.Request{Body: &wire.Request_AcquireLease{AcquireLease: &wire.AcquireLeaseRequest{Secret: s, Acquire: elsewhere}}})
		},
		"extend_lease": func(s []byte) uint64 {
			return ask(&wire.Request{Body: &wire.Request_ExtendLease{ExtendLease: &wire.ExtendLeaseRequest{Secret: s, HoldId: at.hold}}})
		},
		"release_lease": func(s []byte) uint64 {
			return ask(&wire.Request{Body: &wire.Request_ReleaseLease{ReleaseLease: &wire.ReleaseLeaseRequest{Secret: s, HoldId: at.hold}}})
		},
	}
}

// denied checks that an HTTP request was refused because of its secret.
func denied(t *testing.T, what string, err error) uint64 {
	t.Helper()
	if code := connect.CodeOf(err); err == nil || code != connect.CodePermissionDenied && code != connect.CodeInvalidArgument {
		t.Errorf("%s: %v", what, err)
	}
	return 0
}

func (at target) with(secret []byte) *wire.Credentials {
	return &wire.Credentials{SessionId: at.session, Secret: secret}
}

func sessionAttempts(t *testing.T, url string, at target) map[string]attempt {
	sessions := wireconnect.NewSessionServiceClient(http.DefaultClient, url)
	return map[string]attempt{
		"SessionService/Open": func(s []byte) uint64 {
			got, err := sessions.Open(t.Context(), connect.NewRequest(&wire.OpenRequest{Secret: s}))
			if err != nil {
				return denied(t, "open", err)
			}
			return got.Msg.GetSessionId()
		},
		"SessionService/Heartbeat": func(s []byte) uint64 {
			_, err := sessions.Heartbeat(t.Context(), connect.NewRequest(&wire.HeartbeatRequest{Session: at.with(s)}))
			return denied(t, "heartbeat", err)
		},
		"SessionService/Close": func(s []byte) uint64 {
			_, err := sessions.Close(t.Context(), connect.NewRequest(&wire.CloseRequest{Session: at.with(s)}))
			return denied(t, "close", err)
		},
	}
}

func lockAttempts(t *testing.T, url string, at target) map[string]attempt {
	locks := wireconnect.NewLockServiceClient(http.DefaultClient, url)
	return map[string]attempt{
		"LockService/Acquire": func(s []byte) uint64 {
			_, err := locks.Acquire(t.Context(), connect.NewRequest(&wire.AcquireRequest{Session: at.with(s), Seq: 9, Name: "something/else"}))
			return denied(t, "acquire", err)
		},
		"LockService/Release": func(s []byte) uint64 {
			_, err := locks.Release(t.Context(), connect.NewRequest(&wire.ReleaseRequest{Session: at.with(s), Seq: 9, HoldId: at.hold, Token: at.token}))
			return denied(t, "release", err)
		},
		"LockService/SetValue": func(s []byte) uint64 {
			_, err := locks.SetValue(t.Context(), connect.NewRequest(&wire.SetValueRequest{Session: at.with(s), Seq: 9, HoldId: at.hold, Token: at.token}))
			return denied(t, "set a value", err)
		},
		"LockService/Upgrade": func(s []byte) uint64 {
			_, err := locks.Upgrade(t.Context(), connect.NewRequest(&wire.UpgradeRequest{Session: at.with(s), Seq: 9, HoldId: at.hold, Token: at.token}))
			return denied(t, "upgrade", err)
		},
		"LockService/Downgrade": func(s []byte) uint64 {
			_, err := locks.Downgrade(t.Context(), connect.NewRequest(&wire.DowngradeRequest{Session: at.with(s), Seq: 9, HoldId: at.hold, Token: at.token}))
			return denied(t, "downgrade", err)
		},
		"LockService/Extend": func(s []byte) uint64 {
			_, err := locks.Extend(t.Context(), connect.NewRequest(&wire.ExtendRequest{Session: at.with(s), Seq: 9, HoldId: at.hold, Token: at.token}))
			return denied(t, "extend", err)
		},
	}
}

func leaseAttempts(t *testing.T, url string, at target) map[string]attempt {
	leases := wireconnect.NewLeaseServiceClient(http.DefaultClient, url)
	return map[string]attempt{
		"LeaseService/Acquire": func(s []byte) uint64 {
			got, err := leases.Acquire(t.Context(), connect.NewRequest(&wire.AcquireLeaseRequest{Secret: s, Acquire: elsewhere}))
			if err != nil {
				return denied(t, "acquire a lease", err)
			}
			return got.Msg.GetSessionId()
		},
		"LeaseService/Extend": func(s []byte) uint64 {
			got, err := leases.Extend(t.Context(), connect.NewRequest(&wire.ExtendLeaseRequest{Secret: s, HoldId: at.hold}))
			if err != nil || got.Msg.GetStatus() != wire.Status_NOT_HELD {
				return denied(t, "extend a lease", err)
			}
			return 0
		},
		"LeaseService/Release": func(s []byte) uint64 {
			got, err := leases.Release(t.Context(), connect.NewRequest(&wire.ReleaseLeaseRequest{Secret: s, HoldId: at.hold}))
			if err != nil || got.Msg.GetStatus() != wire.Status_NOT_HELD {
				return denied(t, "release a lease", err)
			}
			return 0
		},
	}
}

var refusals = []wire.Status_Code{wire.Status_PERMISSION_DENIED, wire.Status_NOT_HELD, wire.Status_INVALID_ARGUMENT}

// TestBackupYieldsNoCredential downloads a backup as any client may, and tries the hashes in it as secrets of
// every request that takes one.
func TestBackupYieldsNoCredential(t *testing.T) {
	node := open(t, quick(t))
	serving(t, node)
	defer http.DefaultClient.CloseIdleConnections()
	owner := dial(t, node)
	session := owner.open("a secret of some length")
	held := owner.expect(wire.Status_GRANTED, acquire(session, 1, "orders/1")).GetResult()
	leased := owner.expect(wire.Status_GRANTED, leasing("the secret of a lease", "orders/2")).GetResult()

	file := backup(t, "http://"+node.Addrs().HTTP)
	hashes := hashesIn(t, file)
	if len(hashes) != 2 {
		t.Fatalf("hashes %x, want those of a session and a lease", hashes)
	}
	names := secretsOf(t)
	for victim, hash := range hashes {
		hold := held
		if victim == leased.GetSessionId() {
			hold = leased
		}
		tries := attempts(t, node, target{victim, hold.GetHoldId(), hold.GetToken(), refusals})
		if len(tries) != len(names) {
			t.Errorf("%d requests take a secret, %d are tried: %v", len(names), len(tries), names)
		}
		for _, name := range names {
			if try := tries[name]; try == nil {
				t.Errorf("%s takes a secret and is not tried", name)
			} else if got := try(hash); got == victim {
				t.Errorf("%s took the hash of session %d for its secret", name, victim)
			}
		}
	}
	owner.expect(wire.Status_OK, heartbeat(session)) // no attempt took it over
	owner.expect(wire.Status_OK, release(session, 2, held))
	owner.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_ReleaseLease{ReleaseLease: &wire.ReleaseLeaseRequest{
		Secret: []byte("the secret of a lease"), HoldId: leased.GetHoldId(),
	}}})
}

// TestSecretsAreBounded tries secrets with lengths around the bounds.
func TestSecretsAreBounded(t *testing.T) {
	node := open(t, quick(t))
	serving(t, node)
	defer http.DefaultClient.CloseIdleConnections()
	names := secretsOf(t)
	for length, allowed := range map[int]bool{
		0: false, wire.MinSecretBytes - 1: false, wire.MinSecretBytes: true, wire.MaxSecretBytes: true, wire.MaxSecretBytes + 1: false,
	} {
		for _, name := range names {
			if !strings.HasSuffix(strings.ToLower(name), "open") && name != "open_session" {
				continue
			}
			secret := bytes.Repeat([]byte{byte(len(name))}, length)
			got := attempts(t, node, target{session: 1, refused: refusals})[name](secret)
			if (got != 0) != allowed {
				t.Errorf("%s with a secret of %d bytes: session %d", name, length, got)
			}
		}
	}
	c := dial(t, node)
	for _, length := range []int{0, wire.MinSecretBytes - 1, wire.MaxSecretBytes + 1} {
		secret := string(make([]byte, length))
		c.expect(wire.Status_INVALID_ARGUMENT, attach(c.open("a secret of some length"), secret))
		c.expect(wire.Status_INVALID_ARGUMENT, leasing(secret, "orders/1"))
	}
}

// answerOnce sends a request on a new connection.
func answerOnce(t *testing.T, node *Node, req *wire.Request) *wire.Response {
	t.Helper()
	c := dial(t, node)
	defer transport.Cut(c.conn)
	return c.answer(req)
}

func leasing(secret, name string) *wire.Request {
	return &wire.Request{Body: &wire.Request_AcquireLease{AcquireLease: &wire.AcquireLeaseRequest{
		Secret: []byte(secret), Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: name}}},
	}}}
}

// TestSecretsAreNeverShown uses recognizable secrets, valid and invalid ones, and searches for them in the
// log, the answers and a backup.
func TestSecretsAreNeverShown(t *testing.T) {
	cfg, shown := quick(t), &transcript{}
	cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: shown, Level: hclog.Trace})
	node := open(t, cfg)
	serving(t, node)
	url := "http://" + node.Addrs().HTTP
	defer http.DefaultClient.CloseIdleConnections()
	const well, badly = "sesame, of the session", "sesame short" // the test searches for the common prefix
	c := dial(t, node)
	session := c.open(well)
	c.expect(wire.Status_GRANTED, acquire(session, 1, "orders/1"))
	c.expect(wire.Status_GRANTED, leasing("sesame, of the lease", "orders/2"))
	for _, try := range attempts(t, node, target{session, 1, 1, refusals}) {
		try([]byte(badly))
		try([]byte("sesame, somebody else's"))
	}
	for _, req := range []*wire.Request{
		attach(session, badly), attach(session, "sesame, somebody else's"), leasing(badly, "orders/3"),
		{Body: &wire.Request_ListSessions{ListSessions: &wire.ListSessionsRequest{}}},
		{Body: &wire.Request_ListLocks{ListLocks: &wire.ListLocksRequest{}}},
		{Body: &wire.Request_ListAudit{ListAudit: &wire.ListAuditRequest{}}},
		{Body: &wire.Request_Status{Status: &wire.StatusRequest{}}},
		attach(session, well),
	} {
		shown.add(answerOnce(t, node, req))
	}
	for _, call := range []string{"SessionService/Open", "SessionService/Heartbeat", "LeaseService/Acquire"} {
		body := `{"secret":"c2VzYW1lIHNob3J0","session":{"sessionId":"1","secret":"c2VzYW1lIHNob3J0"}}`
		resp, err := http.Post(url+"/quorumlock.v1."+call, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(shown, resp.Body)
		_ = resp.Body.Close()
	}
	_, _ = shown.Write(backup(t, url))
	for _, form := range []string{"sesame", "736573616d65", "c2VzYW1l"} { // plain, in hex, in base64
		if found := shown.find(form); found != "" {
			t.Errorf("a secret is shown: %s", found)
		}
	}
}

// transcript collects the output of a node.
type transcript struct {
	mu   sync.Mutex
	text []byte
}

func (s *transcript) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, p...)
	return len(p), nil
}

func (s *transcript) add(resp *wire.Response) {
	text, _ := protojson.Marshal(resp)
	_, _ = s.Write(append(text, prototext.Format(resp)...))
}

// find returns the surroundings of the first occurrence of text, or "".
func (s *transcript) find(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := bytes.Index(s.text, []byte(text))
	if at < 0 {
		return ""
	}
	return string(s.text[max(at-80, 0):min(at+80, len(s.text))])
}
