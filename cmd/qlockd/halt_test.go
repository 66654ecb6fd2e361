package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestNodeThatCannotWriteHalts(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh to limit the size of files with: ", err)
	}
	// Files are limited to 1 or 2 MiB. A snapshot of a thousand sessions is larger, the log's files are not.
	limited := append([]string{"-c", `ulimit -f 2048 && exec "$0" "$@"`, binary},
		freePorts("--dev", "--log-segment-bytes", "65536", "--snapshot-threshold", "8", "--snapshot-interval", "100ms")...)
	d := startProgram(t, sh, nil, limited...)
	_, conn, frames := hello(t, d.addr("client"))
	out := transport.NewFrameWriter(conn, transport.DefaultMaxFrame)
	opened := 0 // sessions; opening fails until the node leads
	for id := uint64(1); opened < 3_000; id++ {
		open := &wire.Request{Id: id, Body: &wire.Request_OpenSession{OpenSession: &wire.OpenRequest{
			Secret: fmt.Appendf(nil, "secret of session %d", id), Client: &wire.ClientInfo{Name: strings.Repeat("n", 3_000)},
		}}}
		if out.Write(&wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: open}}) != nil {
			break
		}
		var answer wire.ServerFrame
		if frames.Read(&answer) != nil {
			break
		}
		if answer.GetResponse().GetResult().GetStatus() == wire.Status_OK {
			opened++
		}
	}
	if opened == 3_000 {
		t.Fatalf("the node still writes:\n%s", d.text())
	}
	<-d.done
	if code := d.cmd.ProcessState.ExitCode(); code != exitSoftware {
		t.Errorf("exit code %d, want %d", code, exitSoftware)
	}
	if last := lastLine(d.text()); !strings.HasPrefix(last, "qlockd: halted: ") || !strings.Contains(last, "file too large") {
		t.Errorf("the last line is %q", last)
	}
}
