package wire_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestDigests compares the digests of requests with the recorded ones. They are frozen: a different
// digest breaks retries across an upgrade, and other programs that compute digests. Only add to the file.
func TestDigests(t *testing.T) {
	text, err := os.ReadFile("testdata/digests.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Digest  string
		Request json.RawMessage
	}
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for i, v := range vectors {
		req := &wire.Request{}
		if err := protojson.Unmarshal(v.Request, req); err != nil {
			t.Fatalf("vector %d: %v", i, err)
		}
		kinds[fmt.Sprintf("%T", req.Body)] = true
		if got := fmt.Sprintf("%016x", req.Digest()); got != v.Digest {
			t.Errorf("vector %d: digest %s, want %s of %s", i, got, v.Digest, v.Request)
		}
		if cmd := commandOf(req); cmd.Digest() != req.Digest() {
			t.Errorf("vector %d: digest %016x of the command, %016x of the request", i, cmd.Digest(), req.Digest())
		}
	}
	if len(kinds) != 9 {
		t.Errorf("vectors of %d kinds of requests: %v", len(kinds), kinds)
	}
	if n := testing.AllocsPerRun(100, func() { _ = plain.Digest() }); n != 0 {
		t.Errorf("a digest takes %v allocations", n)
	}
}

var plain = &wire.Request{Body: &wire.Request_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "orders/42"}}, Owner: 7}}}

// commandOf returns the request as the log contains it.
func commandOf(req *wire.Request) *wire.Command {
	switch body := req.Body.(type) {
	case *wire.Request_Acquire:
		return &wire.Command{Op: &wire.Command_Acquire{Acquire: body.Acquire}}
	case *wire.Request_AcquireCached:
		return &wire.Command{Op: &wire.Command_AcquireCached{AcquireCached: body.AcquireCached}}
	case *wire.Request_Release:
		return &wire.Command{Op: &wire.Command_Release{Release: body.Release}}
	case *wire.Request_Cancel:
		return &wire.Command{Op: &wire.Command_Cancel{Cancel: body.Cancel}}
	case *wire.Request_SetValue:
		return &wire.Command{Op: &wire.Command_SetValue{SetValue: body.SetValue}}
	case *wire.Request_Upgrade:
		return &wire.Command{Op: &wire.Command_Upgrade{Upgrade: body.Upgrade}}
	case *wire.Request_Downgrade:
		return &wire.Command{Op: &wire.Command_Downgrade{Downgrade: body.Downgrade}}
	case *wire.Request_Extend:
		return &wire.Command{Op: &wire.Command_Extend{Extend: body.Extend}}
	case *wire.Request_AcquireLease:
		return &wire.Command{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{Acquire: body.AcquireLease.GetAcquire()}}}
	}
	return &wire.Command{}
}

func BenchmarkDigest(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = plain.Digest()
	}
}
