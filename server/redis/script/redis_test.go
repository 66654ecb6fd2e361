package script_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// redis is a connection to a real Redis, which ends with the test.
type redis struct {
	conn   net.Conn
	reader *bufio.Reader
}

// startRedis starts redis-server on a Unix socket. It skips the test if there is none, except in "make check".
func startRedis(t testing.TB) *redis {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("QUORUMLOCK_CHECK") == "1" {
			t.Fatal("redis-server is missing: install Debian's package redis-server")
		}
		t.Skip("redis-server is missing: install Debian's package redis-server to compare scripts with it")
	}
	dir, err := os.MkdirTemp("", "redis") // not t.TempDir: the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "socket")
	server := exec.CommandContext(t.Context(), "redis-server", "--port", "0", "--unixsocket", socket, "--dir", dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no")
	output, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		_ = os.RemoveAll(dir)
	})
	awaitReady(t, server.Process, output)
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &redis{conn, bufio.NewReader(conn)}
}

// awaitReady reads the log of a server until it accepts connections.
func awaitReady(t testing.TB, server *os.Process, log io.Reader) {
	t.Helper()
	timeout := time.AfterFunc(time.Minute, func() { _ = server.Kill() })
	defer timeout.Stop()
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if strings.Contains(strings.ToLower(lines.Text()), "ready to accept connections") {
			go func() { _, _ = io.Copy(io.Discard, log) }() // ends with the server
			return
		}
	}
	t.Fatalf("redis-server ended before it accepted connections: %v", lines.Err())
}

// do sends a command and returns its answer in RESP2, without the lengths of bulk strings.
func (r *redis) do(args ...string) (string, error) {
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(r.conn, request.String()); err != nil {
		return "", err
	}
	line, err := r.reader.ReadString('\n')
	if err != nil {
		return "", err
	}
	return r.rest(strings.TrimSuffix(line, "\r\n"))
}

// rest reads the rest of an answer after its first line. The elements of an array follow it after spaces.
func (r *redis) rest(line string) (string, error) {
	if line[0] == '*' {
		return r.array(line)
	}
	if line[0] != '$' || line == "$-1" {
		return line, nil
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil {
		return "", err
	}
	content := make([]byte, n+2)
	_, err = io.ReadFull(r.reader, content)
	return "$" + string(content[:n]), err
}

func (r *redis) array(line string) (string, error) {
	n, err := strconv.Atoi(line[1:])
	for range n {
		first, err := r.reader.ReadString('\n')
		if err != nil {
			return "", err
		}
		element, err := r.rest(strings.TrimSuffix(first, "\r\n"))
		if err != nil {
			return "", err
		}
		line += " " + element
	}
	return line, err
}

// must is do for commands that cannot fail.
func (r *redis) must(t testing.TB, args ...string) string {
	t.Helper()
	answer, err := r.do(args...)
	if err != nil || answer[0] == '-' {
		t.Fatalf("%q: %q, %v", args, answer, err)
	}
	return answer
}
