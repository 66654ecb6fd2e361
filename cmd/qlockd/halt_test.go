package main

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestNodeThatCannotWriteHalts makes the log grow by as much as triggers a snapshot, which is larger than files
// may be. The files of the log are small enough.
func TestNodeThatCannotWriteHalts(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh to limit the size of files with: ", err)
	}
	const value = 64 << 10
	// Files are limited to 1 or 2 MiB, depending on the shell.
	limited := append([]string{"-c", `ulimit -f 2048 && exec "$0" "$@"`, binary}, freePorts("--dev",
		"--log-segment-bytes", "524288", "--max-value-bytes", fmt.Sprint(value), "--max-session-bytes", "134217728", "--max-state-bytes", "134217728")...)
	d := startProgram(t, sh, nil, limited...)
	_, conn, frames := hello(t, d.addr("client"))
	secret := []byte("secret of the session")
	session := uint64(0)
	for session == 0 { // opening fails until the node leads
		answer, err := ask(conn, frames, &wire.Request{Id: 1, Body: &wire.Request_OpenSession{OpenSession: &wire.OpenRequest{Secret: secret}}})
		if err != nil {
			t.Fatal(err)
		}
		session = answer.GetResult().GetSession().GetSessionId()
	}
	content := bytes.Repeat([]byte("v"), value)
	granted := 0 // locks whose values are in the snapshot
	for seq := uint64(1); granted < 1_900; seq++ {
		answer, err := ask(conn, frames, &wire.Request{Id: seq, SessionId: session, Seq: seq, AckedBelow: seq, Body: &wire.Request_Acquire{
			Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: fmt.Sprint("lock ", seq)}}, Value: content},
		}})
		if err != nil {
			break
		}
		if answer.GetResult().GetStatus() == wire.Status_GRANTED {
			granted++
		}
	}
	if granted == 1_900 {
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

// ask sends a request and returns the response to it.
func ask(conn net.Conn, frames *transport.FrameReader, request *wire.Request) (*wire.Response, error) {
	if err := transport.NewFrameWriter(conn, transport.DefaultMaxFrame).Write(&wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: request}}); err != nil {
		return nil, err
	}
	for {
		var answer wire.ServerFrame
		if err := frames.Read(&answer); err != nil {
			return nil, err
		}
		if response := answer.GetResponse(); response.GetId() == request.Id {
			return response, nil
		}
	}
}
