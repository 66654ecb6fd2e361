//go:build unix

package main

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestWhatOperatorsAskFor(t *testing.T) {
	f := answering(t)
	var asked proto.Message
	ok := &wire.OperatorResponse{Status: wire.Status_OK}
	f.force = func(req *wire.ForceRelease) (*wire.OperatorResponse, error) { asked = req; return ok, nil }
	f.revoke = func(req *wire.Revoke) (*wire.OperatorResponse, error) { asked = req; return ok, nil }
	f.skipDelay = func(req *wire.SkipDelay) (*wire.OperatorResponse, error) { asked = req; return ok, nil }
	f.resize = func(req *wire.Resize) (*wire.OperatorResponse, error) { asked = req; return ok, nil }
	f.forceClose = func(req *wire.ForceClose) (*wire.OperatorResponse, error) { asked = req; return ok, nil }
	for line, want := range map[string]proto.Message{
		"session close --identity ci-7":           &wire.ForceClose{Identity: "ci-7", Reason: "fire", Operator: "me"},
		"session close 77":                        &wire.ForceClose{SessionId: 77, Reason: "fire", Operator: "me"},
		"force-release shared --token 32":         &wire.ForceRelease{HoldId: 61, Token: 32, Reason: "fire", Operator: "me"},
		"force-release pool --token 99 --hold 45": &wire.ForceRelease{HoldId: 45, Token: 99, Reason: "fire", Operator: "me"},
		"force-release cached --token 17":         &wire.ForceRelease{HoldId: 80, Token: 17, Reason: "fire", Operator: "me"},
		"force-release cached --token 80":         &wire.ForceRelease{HoldId: 80, Token: 80, Reason: "fire", Operator: "me"},
		"revoke shared --token 31":                &wire.Revoke{HoldId: 60, Token: 31, Reason: "fire", Operator: "me"},
		"revoke shared --token 31 --grace 1500ms": &wire.Revoke{HoldId: 60, Token: 31, Reason: "fire", Operator: "me", GraceMs: 1500},
		"skip-delay closed":                       &wire.SkipDelay{Name: "closed", Reason: "fire", Operator: "me"},
		"skip-delay closed --hold 70":             &wire.SkipDelay{Name: "closed", HoldId: 70, Reason: "fire", Operator: "me"},
		"resize pool 18446744073709551615":        &wire.Resize{Name: "pool", Limit: 1<<64 - 1, Reason: "fire", Operator: "me"},
	} {
		got := execTest(t, f.dialer, append(strings.Fields(line), "--reason", "fire", "--operator", "me")...)
		if got.code != 0 || !proto.Equal(asked, want) {
			t.Errorf("%s: %+v asked for %v, want %v", line, got, asked, want)
		}
	}
	if got := execTest(t, f.dialer, "resize", "pool", "3", "--reason", "x"); got.code != 0 || asked.(*wire.Resize).GetOperator() == "" {
		t.Errorf("nobody did it: %+v, %v", got, asked)
	}
}

// TestOperatorsHitOneHold checks that nothing is requested of the cluster if the hold is a different one,
// and that a dry run makes no request.
func TestOperatorsHitOneHold(t *testing.T) {
	f := answering(t)
	f.force = func(req *wire.ForceRelease) (*wire.OperatorResponse, error) {
		t.Errorf("asked for %v", req)
		return nil, client.ErrNotHeld
	}
	for line, want := range map[string]string{
		"force-release orders/42 --token 5 --reason x":         "token 5 does not hold orders/42; billing (web1/4242 refund) does, with token 4611686018427387921",
		"force-release orders/42 --token 5 --dry-run":          "token 5 does not hold orders/42",
		"force-release shared --token 31 --hold 61 --reason x": "see qlock show",
		"force-release pool --token 5 --reason x":              "give its --hold too",
		"force-release closed --token 41 --reason x":           "token 41 does not hold closed; nobody does",
		"force-release cached --token 16 --reason x":           "token 16 does not hold cached; web1/4242 refund does, with tokens 17-80",
		"force-release cached --token 81 --dry-run":            "token 81 does not hold cached",
		"revoke nothing --token 5 --reason x":                  "nobody holds nothing",
	} {
		got := execTest(t, f.dialer, strings.Fields(line)...)
		if got.code != exitNotHeld || !strings.Contains(got.err, want) {
			t.Errorf("%s: %+v, want %q", line, got, want)
		}
	}
	if got := execTest(t, f.dialer, strings.Fields("force-release orders/42 --token 4611686018427387921 --dry-run")...); got.code != 0 {
		t.Errorf("dry run: %+v", got)
	}
}

func TestMessagesForOperators(t *testing.T) {
	f := answering(t)
	f.force = func(*wire.ForceRelease) (*wire.OperatorResponse, error) { return nil, client.ErrNotHeld }
	f.skipDelay = func(*wire.SkipDelay) (*wire.OperatorResponse, error) { return nil, client.ErrNotFound }
	f.resize = func(*wire.Resize) (*wire.OperatorResponse, error) { return nil, client.ErrNotFound }
	f.forceClose = func(*wire.ForceClose) (*wire.OperatorResponse, error) { return nil, client.ErrNotFound }
	for line, want := range map[string]int{
		"force-release shared --token 32": exitNotHeld,
		"skip-delay closed":               exitNoSuch,
		"resize pool 3":                   exitNoSuch,
		"session close 77":                exitNoSuch,
		"why nothing":                     exitNoSuch,
		"elect alone/not --leader":        exitNoSuch,
		"elect closed --leader":           exitNoSuch,
		"verify orders/42 5":              exitNotHeld,
	} {
		words := strings.Fields(line)
		if strings.Contains("force-release skip-delay resize session", words[0]) {
			words = append(words, "--reason", "x")
		}
		got := execTest(t, f.dialer, words...)
		if got.code != want || words[0] != "verify" && got.err == "" {
			t.Errorf("%s: %+v, want %d", line, got, want)
		}
	}
	got := execTest(t, f.dialer, "verify", "orders/42", "5", "-o", "json")
	if got.code != exitNotHeld || got.out != "{\n  \"name\": \"orders/42\",\n  \"token\": \"5\",\n  \"held\": false,\n  \"cached\": false\n}\n" {
		t.Errorf("%+v", got)
	}
	long := strings.Repeat("x", 1025)
	if got := execTest(t, f.dialer, "resize", "pool", "3", "--reason", long); got.code != exitUsage {
		t.Errorf("%+v", got)
	}
}

// TestAuditOfClosedSessions checks that the audit log says whose sessions were closed.
func TestAuditOfClosedSessions(t *testing.T) {
	if got := about(&wire.AuditRecord{Action: wire.AuditRecord_FORCE_CLOSE, Identity: "ci\n7"}); got != `sessions of ci\n7` {
		t.Error(got)
	}
}
