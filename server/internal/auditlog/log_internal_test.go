package auditlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// opened opens a log of the node n1 of the cluster c1. The returned text is what it has logged, once it is closed.
func opened(t *testing.T, path string) (*Log, *bytes.Buffer) {
	t.Helper()
	var text bytes.Buffer
	l, err := Open(config(path, &text))
	if err != nil {
		t.Fatal(err)
	}
	return l, &text
}

func config(path string, text *bytes.Buffer) Config {
	return Config{
		Path: path, NodeID: "n1", ClusterID: func() string { return "c1" },
		Logger: hclog.New(&hclog.LoggerOptions{Output: text, Level: hclog.Info}), Registry: prometheus.NewRegistry(),
	}
}

func closeLog(t *testing.T, l *Log) {
	t.Helper()
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// records returns records with these ids, each at the revision of ten times its id.
func records(from, to uint64) (all []*wire.AuditRecord) {
	for id := from; id <= to; id++ {
		all = append(all, &wire.AuditRecord{
			Id: id, Revision: 10 * id, Action: wire.AuditRecord_REVOKE, Lock: "orders/" + fmt.Sprint(id), Reason: "two words",
			Caller: &wire.Caller{Identity: "ann", Credential: "token 7", Address: "10.0.0.1:99"},
		})
	}
	return all
}

func denial(identity, address string) access.Denial {
	return access.Denial{Caller: &wire.Caller{Identity: identity, Address: address}, Request: "Revoke", Status: wire.Status_PERMISSION_DENIED, Message: "no"}
}

// line is a line as a reader sees it.
type line map[string]any

func (l line) number(t *testing.T, name string) uint64 {
	t.Helper()
	text, _ := l[name].(string)
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Errorf("%s in %v: %v", name, l, err)
	}
	return n
}

func linesOf(t *testing.T, path string) (lines []line) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for one := range bytes.Lines(text) {
		var l line
		if err := json.Unmarshal(one, &l); err != nil {
			t.Fatalf("%q: %v", one, err)
		}
		if l["clusterId"] == nil || l["nodeId"] != "n1" {
			t.Errorf("a line of no node: %v", l)
		}
		lines = append(lines, l)
	}
	return lines
}

// acts returns the ids of the records in files, in their order.
func acts(t *testing.T, paths ...string) (ids []uint64) {
	t.Helper()
	for _, path := range paths {
		for _, l := range linesOf(t, path) {
			if l["kind"] == kindAct {
				ids = append(ids, l.number(t, "id"))
			}
		}
	}
	return ids
}

// kinds returns the kinds of the lines of a file, and the ids of records.
func kinds(t *testing.T, path string) string {
	t.Helper()
	var all []string
	for _, l := range linesOf(t, path) {
		switch l["kind"] {
		case kindAct:
			all = append(all, fmt.Sprint(l["id"]))
		case kindMissing:
			all = append(all, fmt.Sprintf("MISSING %v-%v", l["afterId"], l["beforeId"]))
		case kindDropped:
			all = append(all, fmt.Sprintf("DROPPED %v", l["count"]))
		default:
			all = append(all, fmt.Sprintf("%v after %v", l["kind"], l["afterId"]))
		}
	}
	return strings.Join(all, ", ")
}

// wantIDs verifies that all records from 1 to last are there, in order and once.
func wantIDs(t *testing.T, got []uint64, last uint64) {
	t.Helper()
	if uint64(len(got)) != last {
		t.Errorf("%d records, want %d: %v", len(got), last, got)
		return
	}
	for i, id := range got {
		if id != uint64(i)+1 {
			t.Errorf("record %d is the one with id %d", i+1, id)
			return
		}
	}
}

// TestLines verifies what a file contains.
func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, text := opened(t, path)
	l.Append("c1", records(1, 2))
	l.Deny(denial("bob", "10.0.0.2:5"))
	l.Deny(access.Denial{Caller: &wire.Caller{Address: "10.0.0.3:5"}, Status: wire.Status_UNAUTHENTICATED, Message: "the token is unknown"})
	l.AppendLocal(&wire.AuditRecord{Action: wire.AuditRecord_SAVE_SNAPSHOT, Reason: "no leader", Ticket: "T-1"})
	closeLog(t, l)
	if got, want := kinds(t, path), "OPENED after 0, 1, 2, DENIED after 2, DENIED after 2, LOCAL after 2"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	lines := linesOf(t, path)
	caller, _ := lines[1]["caller"].(map[string]any)
	if l := lines[1]; l["clusterId"] != "c1" || l["action"] != "REVOKE" || l["lock"] != "orders/1" || l["reason"] != "two words" || caller["identity"] != "ann" || caller["address"] != "10.0.0.1:99" {
		t.Errorf("an act is told as %v", l)
	}
	caller, _ = lines[3]["caller"].(map[string]any)
	if l := lines[3]; l["request"] != "Revoke" || l["status"] != "PERMISSION_DENIED" || l["message"] != "no" || caller["identity"] != "bob" || l.number(t, "wallUnixMs") == 0 || l.number(t, "afterRevision") != 20 {
		t.Errorf("a denial is told as %v", l)
	}
	if l := lines[4]; l["status"] != "UNAUTHENTICATED" || l["request"] != nil {
		t.Errorf("a refused caller is told as %v", l)
	}
	if act, _ := lines[5]["act"].(map[string]any); act["action"] != "SAVE_SNAPSHOT" || act["reason"] != "no leader" || act["ticket"] != "T-1" {
		t.Errorf("a local act is told as %v", lines[5])
	}
	if s := text.String(); !strings.Contains(s, "identity=bob") || !strings.Contains(s, "remote=10.0.0.3:5") {
		t.Errorf("the node's log says\n%s", s)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestNoFieldIsHidden verifies that the fields of a line's beginning are none of the fields of a record.
func TestNoFieldIsHidden(t *testing.T) {
	fields := (&wire.AuditRecord{}).ProtoReflect().Descriptor().Fields()
	for _, name := range []string{"kind", "clusterId", "nodeId", "afterId"} {
		if fields.ByJSONName(name) != nil {
			t.Errorf("a record has a field %s of its own", name)
		}
	}
}

// TestKilledAtAnyByte cuts a file at each of its bytes, as a kill does, and continues. All records must be there once
// and in order.
func TestKilledAtAnyByte(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "whole")
	l, _ := opened(t, path)
	l.Append("c1", records(1, 3))
	l.Deny(denial("bob", ""))
	closeLog(t, l)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) + 1 {
		cut := filepath.Join(dir, "cut")
		if err := os.WriteFile(cut, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		l, _ := opened(t, cut)
		l.Append("c1", records(1, 5)) // a snapshot, or the log from its beginning
		closeLog(t, l)
		wantIDs(t, acts(t, cut), 5)
		if t.Failed() {
			t.Fatalf("after %d bytes: %s", n, kinds(t, cut))
		}
	}
}

// TestForeignFilesAreKept opens files that are not audit logs.
func TestForeignFilesAreKept(t *testing.T) {
	dir := t.TempDir()
	for i, text := range []string{"no line", "some\nlines", "{\"kind\":7}\n{}\n", "\n\n\n", "{\"kind\":\"ACT\",\"id\":\"x\"}\n", strings.Repeat("x", tailBytes+7)} {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l, _ := opened(t, path)
		l.Append("c1", records(1, 1))
		closeLog(t, l)
		got, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(got), strings.TrimSuffix(text, "\n")+"\n{\"kind\":\"OPENED\"") {
			t.Errorf("%.20q became %.80q, %v", text, got, err)
		}
	}
	if _, err := Open(config(dir, &bytes.Buffer{})); !errors.Is(err, ErrFile) {
		t.Errorf("a directory: %v", err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	if _, err := Open(config(pipe, &bytes.Buffer{})); !errors.Is(err, ErrFile) {
		t.Errorf("a pipe: %v", err)
	}
}

// TestRecordsOfASnapshot verifies that only records that the file lacks are written, that missing ones are reported,
// and that another cluster's records start again.
func TestRecordsOfASnapshot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, _ := opened(t, path)
	l.Append("c1", records(1, 2))
	imported := records(12, 12)
	imported[0].Imported = &wire.AuditImport{ClusterId: "lost", Id: 3, RestoreId: 13}
	imported[0].Revision = 1 << 40
	l.Append("c1", append(append(append(records(1, 3), records(7, 8)...), imported...), records(13, 13)...))
	closeLog(t, l)
	l, _ = opened(t, path)
	l.Append("c1", records(7, 14))
	l.Append("c2", records(2, 2))
	l.Append("", records(3, 3))
	closeLog(t, l)
	want := "OPENED after 0, 1, 2, 3, MISSING 3-7, 7, 8, MISSING 8-12, 12, 13, OPENED after 13, 14, MISSING 0-2, 2, 3"
	if got := kinds(t, path); got != want {
		t.Errorf("\n%s, want\n%s", got, want)
	}
	lines := linesOf(t, path)
	if m := lines[4]; m.number(t, "afterRevision") != 30 || m.number(t, "beforeRevision") != 70 {
		t.Errorf("missing: %v", m)
	}
	if m := lines[7]; m.number(t, "afterRevision") != 80 || m.number(t, "beforeRevision") != 80 {
		t.Errorf("missing before an imported record: %v", m)
	}
	if lines[13]["clusterId"] != "c2" {
		t.Errorf("of another cluster: %v", lines[13])
	}
}

// TestRotation rotates a file in every way, and restarts after each.
func TestRotation(t *testing.T) {
	for name, rotate := range map[string]func(t *testing.T, l *Log, path string){
		"renamed": func(t *testing.T, _ *Log, path string) {
			must(t, os.Rename(path, path+".1"))
			time.Sleep(checkInterval)
		},
		"renamed, with a new file": func(t *testing.T, _ *Log, path string) {
			must(t, os.Rename(path, path+".1"))
			must(t, os.WriteFile(path, nil, 0o640))
			time.Sleep(checkInterval)
		},
		"renamed, and told at once": func(t *testing.T, l *Log, path string) {
			must(t, os.Rename(path, path+".1"))
			l.Reopen()
			l.Reopen()
		},
		"copied and truncated": func(t *testing.T, _ *Log, path string) {
			text, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path+".1", text, 0o600))
			must(t, os.Truncate(path, 0))
			time.Sleep(checkInterval)
		},
		"copied and removed": func(t *testing.T, _ *Log, path string) {
			must(t, os.Link(path, path+".1"))
			must(t, os.Remove(path))
			time.Sleep(checkInterval)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			bubble.Test(t, func(t *testing.T) {
				l, text := opened(t, path)
				l.Append("c1", records(1, 3))
				synctest.Wait()
				rotate(t, l, path)
				synctest.Wait()
				if got := kinds(t, path); !strings.HasPrefix(got, "OPENED after 3") {
					t.Errorf("the new file begins with %s", got)
				}
				l.Append("c1", records(4, 5))
				closeLog(t, l)
				if text.Len() > 0 {
					t.Errorf("logged %s", text)
				}
				again, _ := opened(t, path)
				again.Append("c1", records(1, 7))
				closeLog(t, again)
			})
			wantIDs(t, acts(t, path+".1", path), 7)
		})
	}
}

// TestRotatedBeforeAnyLine restarts right after a rotation, when the new file has no record.
func TestRotatedBeforeAnyLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	bubble.Test(t, func(t *testing.T) {
		l, _ := opened(t, path)
		l.Append("c1", records(1, 3))
		synctest.Wait()
		must(t, os.Rename(path, path+".1"))
		time.Sleep(checkInterval)
		l.Deny(denial("bob", ""))
		closeLog(t, l)
		again, _ := opened(t, path)
		again.Append("c1", records(1, 4))
		closeLog(t, again)
	})
	wantIDs(t, acts(t, path+".1", path), 4)
}

func valueOf(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	must(t, c.Write(&m))
	return m.GetCounter().GetValue()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// badDisk writes half of the first line and fails from then on.
type badDisk struct {
	file *file
	mu   sync.Mutex
	bad  bool
	half bool
}

func (d *badDisk) append(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.bad {
		return d.file.f.Write(b)
	}
	n := 0
	if !d.half {
		d.half = true
		n, _ = d.file.f.Write(b[:len(b)/2])
	}
	return n, syscall.ENOSPC
}

func (d *badDisk) set(bad bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bad = bad
}

// TestBadDisk fills the queue while the disk fails. Nothing waits for the disk, what does not fit is dropped and
// reported, and the file is complete up to there.
func TestBadDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	bubble.Test(t, func(t *testing.T) {
		l, disk, text := withBadDisk(t, path)
		began := time.Now()
		l.Append("c1", records(1, 1))
		synctest.Wait() // the writer has taken it and fails
		l.Append("c1", records(2, maxQueued+1))
		l.Append("c1", records(maxQueued+2, maxQueued+4)) // too many
		l.Deny(denial("bob", ""))
		if waited := time.Since(began); waited != 0 {
			t.Errorf("waited for the disk for %v", waited)
		}
		time.Sleep(10 * retryInterval)
		if n := valueOf(t, l.metrics.errors); n < 10 || n > 12 {
			t.Errorf("%v errors in 10 attempts", n)
		}
		disk.set(false)
		time.Sleep(retryInterval)
		synctest.Wait()
		l.Append("c1", records(maxQueued+5, maxQueued+5))
		closeLog(t, l)
		if n := valueOf(t, l.metrics.dropped); n != 4 {
			t.Errorf("%v lines dropped", n)
		}
		if got := strings.Count(text.String(), "cannot be written"); got != 1 {
			t.Errorf("logged %d times: %s", got, text)
		}
	})
	want := fmt.Sprintf("%d, DROPPED 4, MISSING %d-%d, %d", maxQueued+1, maxQueued+1, maxQueued+5, maxQueued+5)
	if got := kinds(t, path); !strings.HasSuffix(got, want) || !strings.HasPrefix(got, "OPENED after 0, 1, 2, 3,") {
		t.Errorf("…%s, want …%s", got[max(0, len(got)-90):], want)
	}
}

// TestClosedWithABadDisk closes a log that cannot write. The next one must continue where the file ends.
func TestClosedWithABadDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	bubble.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		l, err := newLog(config(path, &text))
		must(t, err)
		f, at, err := openFile(path)
		must(t, err)
		disk := &badDisk{file: f}
		f.appendTo = disk.append
		l.start(f, at)
		l.Append("c1", records(1, 2))
		synctest.Wait()
		disk.set(true)
		l.Append("c1", records(3, 9))
		synctest.Wait()
		closeLog(t, l)
		again, _ := opened(t, path)
		again.Append("c1", records(1, 9))
		closeLog(t, again)
	})
	wantIDs(t, acts(t, path), 9)
}

// TestNoFile verifies that denials are logged without a file.
func TestNoFile(t *testing.T) {
	l, text := opened(t, "")
	l.Append("c1", records(1, 1))
	l.Deny(denial("bob", "a:1"))
	l.Reopen()
	closeLog(t, l)
	if s := text.String(); strings.Count(s, "denied") != 1 || !strings.Contains(s, "identity=bob") {
		t.Errorf("logged %s", s)
	}
	if n := valueOf(t, l.metrics.denials.WithLabelValues("PERMISSION_DENIED")); n != 1 {
		t.Errorf("%v denials", n)
	}
}
