package auditlog

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestResumesBehindOtherLines opens a file whose last record is followed by many megabytes that are no lines of this
// package, in short lines and in a long one. Each record must be there once.
func TestResumesBehindOtherLines(t *testing.T) {
	for name, after := range map[string]string{
		"short lines":           strings.Repeat("{\"kind\":\"ACT\"}\n", 3*tailBytes/16),
		"one long line":         strings.Repeat("x", 3*tailBytes+5) + "\n",
		"a long line, cut":      strings.Repeat("x", 2*tailBytes+5),
		"a piece of a line":     "{\"kind\":\"DEN",
		"exactly one read":      strings.Repeat("x", tailBytes-1) + "\n",
		"just more than a read": strings.Repeat("x", tailBytes) + "\n",
	} {
		path := filepath.Join(t.TempDir(), "audit.log")
		l, _ := opened(t, path)
		l.Append("c1", records(1, 3))
		closeLog(t, l)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		must(t, err)
		_, err = f.WriteString(after)
		must(t, errors.Join(err, f.Close()))
		o, at, err := openFile(path)
		must(t, err)
		must(t, o.close())
		if at.id != 3 || at.cluster != "c1" {
			t.Errorf("%s: continues after %v", name, at)
		}
	}
}

// TestQueueIsBoundedInBytes fills the queue with large records while the writer does not run.
func TestQueueIsBoundedInBytes(t *testing.T) {
	var text bytes.Buffer
	l, err := newLog(config("audit.log", &text))
	must(t, err)
	large := records(1, 20)
	for _, r := range large {
		r.Reason = strings.Repeat("x", maxQueuedBytes/10)
	}
	l.Append("c1", large)
	lines, dropped := l.take()
	if len(lines) != 9 || dropped != 11 {
		t.Errorf("%d lines queued, %d dropped", len(lines), dropped)
	}
	l.Append("c1", large)
	if lines, _ = l.take(); len(lines) != 9 {
		t.Errorf("%d lines queued after the queue was emptied", len(lines))
	}
}

// FuzzLastLine verifies that a line that is appended to anything is found.
func FuzzLastLine(f *testing.F) {
	f.Add([]byte("{}\n{\"kind\""), uint64(3))
	f.Add([]byte("\n"), uint64(0))
	f.Fuzz(func(t *testing.T, before []byte, id uint64) {
		lastLine(before)
		tornLine(before)
		line := noteLine(note{head: head{Kind: kindOpened, ClusterID: "c1"}, AfterID: id, AfterRevision: 2})
		all := append(append(before, '\n'), line...)
		got, ok := lastLine(all)
		if want := (position{"c1", id, 2}); got != want || !ok {
			t.Errorf("%v, want %v", got, want)
		}
		if torn, _ := tornLine(all); torn != 0 {
			t.Errorf("%d torn", torn)
		}
	})
}
