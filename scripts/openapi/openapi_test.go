package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"testing"
	"time"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"

	"github.com/quorumlock/quorumlock/server"
)

// served is the document that nodes serve.
const served = "../../server/httpapi/openapi.json"

// startNode starts a node in this process and returns the URL of its HTTP port.
func startNode(t *testing.T) string {
	t.Helper()
	cfg := server.Defaults()
	cfg.ID, cfg.DataDir = "n1", t.TempDir()
	cfg.Listen = server.Addresses{Peer: "127.0.0.1:0", Client: "127.0.0.1:0", HTTP: "127.0.0.1:0"}
	node, err := server.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := node.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return "http://" + node.Addrs().HTTP
}

// newValidator returns a validator of the document.
func newValidator(t *testing.T) validator.Validator {
	t.Helper()
	data, err := os.ReadFile(served)
	if err != nil {
		t.Fatal(err)
	}
	document, err := libopenapi.NewDocument(data)
	if err != nil {
		t.Fatal(err)
	}
	v, errs := validator.NewValidator(document)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return v
}

func TestDocumentIsValid(t *testing.T) {
	if valid, errs := newValidator(t).ValidateDocument(); !valid {
		for _, err := range errs {
			t.Error(err)
		}
	}
}

func TestNodesServeTheDocument(t *testing.T) {
	resp, err := http.Get(startNode(t) + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(served)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" || !bytes.Equal(got, want) {
		t.Errorf("%s, %v, %d bytes; the document has %d", resp.Status, resp.Header, len(got), len(want))
	}
}

// TestExamples sends the examples to a node, and validates the requests and the answers against the document.
func TestExamples(t *testing.T) {
	examples, err := readExamples()
	if err != nil {
		t.Fatal(err)
	}
	v, node := newValidator(t), startNode(t)
	var hold any // the last hold granted
	for _, e := range examples {
		if _, names := e.Request["holdId"]; names {
			e.Request["holdId"] = hold
		}
		body, err := json.Marshal(e.Request)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, node+e.path(), bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		req.Body, resp.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(text))
		if valid, errs := v.ValidateHttpRequestResponse(req, resp); !valid {
			for _, err := range errs {
				t.Errorf("%s: %v", e.Call, err)
			}
		}
		var answer map[string]any
		if err := json.Unmarshal(text, &answer); err != nil {
			t.Fatal(err)
		}
		if id := answer["holdId"]; id != nil {
			hold = id
		}
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", e.Call, resp.Status, text)
		}
		for field, want := range e.Answer {
			if number, isInt := want.(int); isInt {
				want = float64(number)
			}
			if !reflect.DeepEqual(answer[field], want) {
				t.Errorf("%s: %s is %v, want %v", e.Call, field, answer[field], want)
			}
		}
	}
}

// TestTypeScript generates types from the document, and compiles and runs a program that uses them.
func TestTypeScript(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{"package.json", "package-lock.json", "tsconfig.json", "lease.ts"} {
		data, err := os.ReadFile("typescript/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/"+file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(served)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/openapi.json", data, 0o600); err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, line := range [][]string{
		{"npm", "ci", "--no-audit", "--no-fund"},
		{"npx", "openapi-typescript", "openapi.json", "-o", "schema.d.ts"},
		{"npx", "tsc"},
		{"node", "lease.js", startNode(t)},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		cmd := exec.CommandContext(ctx, line[0], line[1:]...)
		cmd.Dir = dir
		out, err = cmd.CombinedOutput()
		cancel()
		if err != nil {
			t.Fatalf("%v: %v\n%s", line, err, out)
		}
	}
	if want := "acquire: GRANTED\nextend: OK\nrelease: OK\n"; string(out) != want {
		t.Errorf("the program printed %q", out)
	}
}
