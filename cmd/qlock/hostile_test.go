//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/urfave/cli/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"gopkg.in/yaml.v3"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// hostile would start a line, control the terminal, reverse the text that follows, and hide itself.
const hostile = "né\nFORGED \x1b[2J\u202egnp\u200b\u2028FORGED\u0085FORGED\r\tFORGED 👩\u200d💻"

// hostileShown is its escaped form.
const hostileShown = `né\nFORGED \x1b[2J\u202egnp\u200b\u2028FORGED\u0085FORGED\r\tFORGED 👩\u200d💻`

// hostileService answers like the service that it wraps, with every text replaced.
type hostileService struct{ *fakeService }

// replaceTexts replaces all texts in an answer, and ends a listing, whose page token is a text too.
func replaceTexts[M proto.Message](answer M, err error) (M, error) {
	if err != nil {
		return answer, err
	}
	answer = proto.Clone(answer).(M)
	m := answer.ProtoReflect()
	replace(m)
	if token := m.Descriptor().Fields().ByName("next_page_token"); token != nil {
		m.Clear(token)
	}
	return answer, nil
}

// replace replaces all texts and values in a message.
func replace(m protoreflect.Message) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsList() && field.Kind() == protoreflect.StringKind:
			for i := range value.List().Len() {
				value.List().Set(i, protoreflect.ValueOfString(hostile))
			}
		case field.IsList() && field.Kind() == protoreflect.MessageKind:
			for i := range value.List().Len() {
				replace(value.List().Get(i).Message())
			}
		case field.IsList():
		case field.Kind() == protoreflect.StringKind:
			m.Set(field, protoreflect.ValueOfString(hostile))
		case field.Kind() == protoreflect.BytesKind:
			m.Set(field, protoreflect.ValueOfBytes([]byte(hostile)))
		case field.Kind() == protoreflect.MessageKind:
			replace(value.Message())
		}
		return true
	})
}

func (h hostileService) ListLocks(ctx context.Context, req *wire.ListLocksRequest) (*wire.ListLocksResponse, error) {
	return replaceTexts(h.fakeService.ListLocks(ctx, req))
}

func (h hostileService) GetLock(ctx context.Context, req *wire.GetLockRequest) (*wire.GetLockResponse, error) {
	return replaceTexts(h.fakeService.GetLock(ctx, req))
}

func (h hostileService) ListSessions(ctx context.Context, req *wire.ListSessionsRequest) (*wire.ListSessionsResponse, error) {
	return replaceTexts(h.fakeService.ListSessions(ctx, req))
}

func (h hostileService) Status(ctx context.Context, req *wire.StatusRequest) (*wire.StatusResponse, error) {
	return replaceTexts(h.fakeService.Status(ctx, req))
}

func (h hostileService) ListDeadlocks(ctx context.Context, req *wire.ListDeadlocksRequest) (*wire.ListDeadlocksResponse, error) {
	return replaceTexts(h.fakeService.ListDeadlocks(ctx, req))
}

func (h hostileService) ListContended(ctx context.Context, req *wire.ListContendedRequest) (*wire.ListContendedResponse, error) {
	return replaceTexts(h.fakeService.ListContended(ctx, req))
}

func (h hostileService) GetSession(ctx context.Context, req *wire.GetSessionRequest) (*wire.GetSessionResponse, error) {
	return replaceTexts(h.fakeService.GetSession(ctx, req))
}

func (h hostileService) ListAudit(ctx context.Context, req *wire.ListAuditRequest) (*wire.ListAuditResponse, error) {
	return replaceTexts(h.fakeService.ListAudit(ctx, req))
}

func (h hostileService) TransferLeadership(ctx context.Context, req *wire.TransferLeadershipRequest) (*wire.TransferLeadershipResponse, error) {
	return replaceTexts(h.fakeService.TransferLeadership(ctx, req))
}

func (h hostileService) dialer(*cli.Context) (service, error) { return h, nil }

// checkEscaped fails if text for people contains a character that Printable escapes, except line breaks, or
// if a text contains a line break.
func checkEscaped(t *testing.T, what, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		for _, r := range line {
			if unicode.In(r, unicode.C, unicode.Z) && r != ' ' {
				t.Errorf("%s has a raw %U: %q", what, r, line)
			}
		}
		if strings.HasPrefix(strings.TrimSpace(line), "FORGED") {
			t.Errorf("%s has a line that a text began: %q", what, line)
		}
	}
}

// TestHostileTextsAreEscaped shows locks, sessions, nodes and records, all of whose texts are hostile, with
// every verb that shows them. They are escaped for people and unchanged for programs.
func TestHostileTextsAreEscaped(t *testing.T) {
	exact, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		words := strings.Fields(shown[name])
		got := execTest(t, hostileService{answering(t)}.dialer, words...)
		checkEscaped(t, name, got.out)
		checkEscaped(t, name, got.err)
		got = execTest(t, hostileService{answering(t)}.dialer, append(words, "-o", "json")...)
		if got.code == 0 && !json.Valid([]byte(got.out)) {
			t.Errorf("%s: no JSON: %q", name, got.out)
		}
		var decoded any
		if err := json.Unmarshal([]byte(got.out), &decoded); err == nil && strings.Contains(got.out, "FORGED") {
			if again, _ := json.Marshal(decoded); !strings.Contains(string(again), string(exact)) {
				t.Errorf("%s: JSON does not have the exact text: %s", name, got.out)
			}
		}
	}
	text := execTest(t, hostileService{answering(t)}.dialer, "show", "orders/42").out
	if n := strings.Count(text, hostileShown); n < 5 {
		t.Errorf("show has %d of the texts: %s", n, text)
	}
}

// checkYAMLEvents checks that the output is one document for each event, with its exact texts.
func checkYAMLEvents(t *testing.T, text string, want int) {
	t.Helper()
	decoder, found := yaml.NewDecoder(strings.NewReader(text)), 0
	for {
		var event map[string]any
		if err := decoder.Decode(&event); err != nil {
			if !errors.Is(err, io.EOF) || found != want {
				t.Errorf("%d documents for %d events, %v: %q", found, want, err, text)
			}
			return
		}
		if found++; event["lineage"] != hostile {
			t.Errorf("not the exact text: %q", event["lineage"])
		}
	}
}

// TestHostileEventsAreEscaped checks watch, whose lines are events.
func TestHostileEventsAreEscaped(t *testing.T) {
	all := events()
	for _, e := range all {
		replace(e.ProtoReflect())
	}
	for _, format := range formats {
		s := &scripted{batches: []wirecall.Batch{{Lineage: hostile, Revision: 300}, {Events: all, Lineage: hostile, Revision: 300}}, last: &client.CompactedError{Message: hostile}}
		got := execTest(t, watching(t, s).dialer, "watch", "-o", format)
		checkEscaped(t, "watch's stderr", got.err)
		if format == "yaml" {
			checkYAMLEvents(t, got.out, len(all))
			continue
		}
		lines := strings.Split(strings.TrimSuffix(got.out, "\n"), "\n")
		if len(lines) != len(all) {
			t.Errorf("%d lines for %d events: %q", len(lines), len(all), got.out)
		}
		if format == "json" {
			for _, line := range lines {
				if !json.Valid([]byte(line)) {
					t.Errorf("no JSON: %q", line)
				}
			}
			continue
		}
		checkEscaped(t, "watch", got.out)
		if !strings.Contains(got.out, hostileShown) {
			t.Errorf("watch does not show the text: %q", got.out)
		}
	}
}

// TestHostileErrorsAreEscaped checks the program's own messages.
func TestHostileErrorsAreEscaped(t *testing.T) {
	step := client.DeadlockStep{Lock: hostile, ClientName: hostile}
	for _, err := range []error{
		&client.StatusError{Status: client.StatusInternal, Message: hostile},
		&client.DeadlockError{Cycle: []client.DeadlockStep{step, step}},
		usagef("no verb %s", hostile),
	} {
		s := scratch(t, "")
		printError(s, err)
		checkEscaped(t, "an error", content(t, s))
	}
	got := execTest(t, dial, "--"+hostile)
	checkEscaped(t, "a wrong flag", got.err)
	got = execTest(t, dial, hostile)
	checkEscaped(t, "a wrong verb", got.err)
	std := console{err: scratch(t, "")}
	std.messages = newMessages(std.err)
	(&task{std: std}).say("an operator wants %s back", hostile)
	std.messages.Close(bound)
	checkEscaped(t, "run", content(t, std.err))
}
