//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// timeout is how long a test waits for an event.
const timeout = time.Minute

// machine is a copy of this machine, which shares its files copy-on-write and has processes and a network of its own.
type machine struct {
	t   *testing.T
	dir string
	pid int
}

// overlay makes the file system of a machine. The directory shared is seen by the machine and by the test.
const overlay = `set -e
cd "$0"
mount --make-rprivate /
mount -t overlay overlay -o lowerdir=/,upperdir=changes,workdir=work root
mount --rbind /dev root/dev
mount -t proc proc root/proc
mount -t tmpfs tmpfs root/tmp
mount -t tmpfs tmpfs root/run
mkdir -p root/srv/shared
mount --bind shared root/srv/shared
ip link set lo up
exec chroot root sh -c 'echo booted; exec env --ignore-signal=CHLD cat'`

// boot starts a machine, which ends with the test.
func boot(t *testing.T) *machine {
	t.Helper()
	for _, program := range []string{"ip", "nsenter", "setpriv"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	m := &machine{t: t, dir: t.TempDir()}
	for _, dir := range []string{"changes", "work", "root", "shared"} {
		if err := os.Mkdir(filepath.Join(m.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "-c", overlay, m.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) {
			t.Skip("it takes root to make a machine of namespaces")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "booted\n" {
		t.Fatalf("the machine does not start: %v", err)
	}
	m.pid = cmd.Process.Pid
	return m
}

// enter is the command that runs another on the machine.
func (m *machine) enter() []string {
	return []string{"nsenter", "--target", strconv.Itoa(m.pid), "--mount", "--net", "--pid", "--root", "--wd"}
}

// run runs a command on the machine and returns what it prints.
func (m *machine) run(name string, args ...string) string {
	m.t.Helper()
	return command(m.t, m.enter(), name, args...)
}

// exists reports whether the machine has a file.
func (m *machine) exists(path string) bool {
	m.t.Helper()
	return exec.Command("nsenter", append(m.enter()[1:], "test", "-e", path)...).Run() == nil
}

// service is a process that was started as systemd starts a service with Type=notify.
type service struct {
	t      *testing.T
	cmd    *exec.Cmd
	states chan string
	ended  chan error
	log    string
}

// start starts what ExecStart of a unit says, as the user and with the directories that the unit names.
func (m *machine) start(unit map[string]string) *service {
	m.t.Helper()
	user := unit["User"]
	m.run("install", "-d", "-o", user, "-g", unit["Group"], "-m", unit["StateDirectoryMode"], "/var/lib/"+unit["StateDirectory"])
	m.run("install", "-d", "-o", user, "-g", unit["Group"], "-m", unit["LogsDirectoryMode"], "/var/log/"+unit["LogsDirectory"])
	s := &service{t: m.t, states: make(chan string, 1024), ended: make(chan error, 1), log: filepath.Join(m.dir, "shared", "log")}
	socket := filepath.Join(m.dir, "shared", "notify")
	_ = os.Remove(socket) // of a former start
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		m.t.Fatal(err)
	}
	if err := os.Chmod(socket, 0o777); err != nil {
		m.t.Fatal(err)
	}
	go s.receive(conn)
	script := fmt.Sprintf("echo $$ > /srv/shared/pid; exec setpriv --reuid %s --regid %s --init-groups --no-new-privs --bounding-set=-all "+
		"env -i NOTIFY_SOCKET=/srv/shared/notify WATCHDOG_USEC=2000000 %s 2>>/srv/shared/log", user, unit["Group"], unit["ExecStart"])
	enter := append(m.enter(), "sh", "-c", script)
	s.cmd = exec.Command(enter[0], enter[1:]...)
	if err := s.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	go func() { s.ended <- s.cmd.Wait() }()
	m.t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = conn.Close()
	})
	s.await("READY=1")
	return s
}

func (s *service) receive(conn *net.UnixConn) {
	for buffer := make([]byte, 4096); ; {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		s.states <- string(buffer[:n])
	}
}

// await waits for a notification that begins with a text.
func (s *service) await(text string) {
	s.t.Helper()
	deadline := time.After(timeout)
	for {
		select {
		case state := <-s.states:
			if strings.HasPrefix(state, text) {
				return
			}
		case err := <-s.ended:
			s.t.Fatalf("the service ended before %s: %v\n%s", text, err, s.text())
		case <-deadline:
			s.t.Fatalf("the service does not send %s\n%s", text, s.text())
		}
	}
}

func (s *service) text() string {
	text, _ := os.ReadFile(s.log) // it is only shown
	return string(text)
}

// stop ends the service as systemd does. nsenter waits for its process and passes on no signal.
func (s *service) stop(m *machine) {
	s.t.Helper()
	m.run("sh", "-c", "kill -TERM $(cat /srv/shared/pid)")
	s.await("STOPPING=1")
	select {
	case err := <-s.ended:
		if err != nil {
			s.t.Errorf("the service ended with %v\n%s", err, s.text())
		}
	case <-time.After(timeout):
		s.t.Fatalf("the service does not stop\n%s", s.text())
	}
}
