package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/urfave/cli/v2"
)

// TestLogRecordIsOneLine checks that no text sent by a caller can start a line of the log or control the
// terminal that shows it.
func TestLogRecordIsOneLine(t *testing.T) {
	const hostile = "né\n2026-11-22T23:59:59.000Z [ERROR] forged\x1b[2J\u202egnp\u200b\u2028\u0085\r"
	for _, format := range []string{"text", "json"} {
		set := flag.NewFlagSet("", flag.ContinueOnError)
		set.String("log-level", "trace", "")
		set.String("log-format", format, "")
		var out bytes.Buffer
		log, err := newLogger(cli.NewContext(nil, set, nil), &out)
		if err != nil {
			t.Fatal(err)
		}
		log.Info(hostile)
		log.Named(hostile).Warn("event", "lock", hostile, "err", errors.New(hostile), hostile, 1)
		log.With("client", hostile).Error("event", "list", []string{hostile, hostile})
		lines := strings.SplitAfter(out.String(), "\n")
		if len(lines) != 4 || lines[3] != "" {
			t.Fatalf("%s: 3 records are %d lines: %q", format, len(lines)-1, out.String())
		}
		for _, line := range lines[:3] {
			if format == "json" {
				if !json.Valid([]byte(line)) {
					t.Errorf("no JSON: %q", line)
				}
				continue
			}
			for _, r := range strings.TrimSuffix(line, "\n") {
				if unicode.In(r, unicode.C, unicode.Z) && r != ' ' {
					t.Errorf("a raw %U: %q", r, line)
				}
			}
			if !strings.Contains(line, "né") {
				t.Errorf("letters are not readable: %q", line)
			}
		}
	}
}

// TestJSONKeys checks the keys that every record has in JSON, and that values are what docs/ops/LOGS.md says: texts of
// durations and of errors, numbers, lists.
func TestJSONKeys(t *testing.T) {
	set := flag.NewFlagSet("", flag.ContinueOnError)
	set.String("log-level", "info", "")
	set.String("log-format", "json", "")
	var out bytes.Buffer
	log, err := newLogger(cli.NewContext(nil, set, nil), &out)
	if err != nil {
		t.Fatal(err)
	}
	log.Named("rpc").Warn("event", "term", uint64(7), "error", errors.New("gone"), "took", (1500 * time.Millisecond).String(), "unreachable", []string{"n2"})
	var record map[string]any
	if err := json.Unmarshal(out.Bytes(), &record); err != nil {
		t.Fatal(err)
	}
	at, _ := record["@timestamp"].(string)
	if _, err := time.Parse(time.RFC3339Nano, at); err != nil {
		t.Error(err)
	}
	delete(record, "@timestamp")
	want := map[string]any{
		"@level": "warn", "@message": "event", "@module": "qlockd.rpc",
		"term": 7.0, "error": "gone", "took": "1.5s", "unreachable": []any{"n2"},
	}
	if !reflect.DeepEqual(record, want) {
		t.Errorf("got %v, want %v", record, want)
	}
}
