//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// auditedIDs returns the ids of the records in audit logs, in their order.
func auditedIDs(t *testing.T, paths ...string) (ids []string) {
	t.Helper()
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for one := range bytes.Lines(text) {
			var l struct{ Kind, ID string }
			if err := json.Unmarshal(one, &l); err != nil {
				t.Fatalf("%q: %v", one, err)
			}
			if l.Kind == "ACT" {
				ids = append(ids, l.ID)
			}
		}
	}
	return ids
}

// acknowledge is an operator's act.
func (d *daemon) acknowledge() {
	d.t.Helper()
	deadline := time.Now().Add(testTimeout)
	for {
		resp, err := http.Post("http://"+d.addr("http")+"/quorumlock.v1.ClusterService/AcknowledgeAlarms", "application/json", strings.NewReader(`{"reason":"seen"}`))
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("the act is not carried out: %v", err)
		}
	}
}

// awaitLine waits until a file contains a text.
func (d *daemon) awaitLine(path, text string) {
	d.t.Helper()
	deadline := time.NewTimer(testTimeout)
	defer deadline.Stop()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for {
		if content, err := os.ReadFile(path); err == nil && strings.Contains(string(content), text) {
			return
		}
		select {
		case <-poll.C:
		case <-deadline.C:
			d.t.Fatalf("%s does not contain %s:\n%s", path, text, d.text())
		}
	}
}

// TestAuditLogIsRotatedAndSurvivesAKill rotates the audit log of a real node with SIGHUP, kills the node and starts it
// again. Each record must be there once.
func TestAuditLogIsRotatedAndSurvivesAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	args := freePorts("--id", "n1", "--data-dir", t.TempDir(), "--audit-log", path)
	d := start(t, nil, args...)
	d.acknowledge()
	d.awaitLine(path, `"id":"1"`)
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	d.awaitLine(path, `"afterId":"1"`)
	d.acknowledge()
	d.awaitLine(path, `"id":"2"`)
	if code := d.signal(syscall.SIGKILL); code == 0 {
		t.Error("the node ended as if it were told to stop")
	}
	again := start(t, nil, args...)
	again.acknowledge()
	again.awaitLine(path, `"id":"3"`)
	if code := again.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if got := fmt.Sprint(auditedIDs(t, path+".1", path)); got != "[1 2 3]" {
		t.Errorf("records %s", got)
	}
	for _, file := range []string{path, path + ".1"} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
}
