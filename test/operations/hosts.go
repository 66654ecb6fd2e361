//go:build linux

package operations

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/quorumlock/quorumlock/test/netns"
)

// operator is the host on which the document's commands run: it sees all processes and files of this machine. The others
// have their own.
const operator = "operator"

// hosts are machines on one network. Each has a first process, with which it ends.
type hosts struct {
	dir   string
	names []string
	net   *netns.Net
	inits map[string]*exec.Cmd
}

// start starts the operator's host and others, which have the programs of a directory in /usr/local/bin.
func start(dir, programs string, names ...string) (*hosts, error) {
	network, err := netns.New(append([]string{operator}, names...)...)
	if err != nil {
		return nil, err
	}
	h := &hosts{dir: dir, names: names, net: network, inits: map[string]*exec.Cmd{}}
	if err := os.Mkdir(h.tools(), 0o755); err != nil {
		return h, err
	}
	if err := os.WriteFile(filepath.Join(dir, "hosts"), []byte(h.addresses()), 0o644); err != nil {
		return h, err
	}
	if err := h.boot(operator, `mount --bind "$0/hosts" /etc/hosts`, syscall.CLONE_NEWNS); err != nil {
		return h, err
	}
	for _, name := range names {
		if err := h.install(name, programs); err != nil {
			return h, fmt.Errorf("host %s: %w", name, err)
		}
		if err := h.boot(name, fmt.Sprintf(overlay, name), syscall.CLONE_NEWNS|syscall.CLONE_NEWPID); err != nil {
			return h, err
		}
	}
	return h, h.writeTools()
}

// overlay mounts a host's file system: that of this machine, with changes of its own.
const overlay = `cd "$0/%s"
mount -t overlay overlay -o lowerdir=/,upperdir=changes,workdir=work root
mount --rbind /dev root/dev
mount -t proc proc root/proc
mount -t tmpfs tmpfs root/tmp
mount -t tmpfs tmpfs root/run
exec chroot root sh -c "$last"`

// boot starts the first process of a host, which prepares it and then waits until the test ends, however it ends. It keeps
// no zombies, since it ignores their signal.
func (h *hosts) boot(name, prepare string, apart uintptr) error {
	script := "set -e\nlast='echo booted; exec env --ignore-signal=CHLD cat'\nmount --make-rprivate /\n" + prepare + "\neval \"$last\"\n"
	cmd := exec.Command("sh", "-c", script, h.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: apart}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if _, err := cmd.StdinPipe(); err != nil {
		return err
	}
	if err := h.net.In(name, cmd.Start); err != nil {
		return fmt.Errorf("host %s: %w", name, err)
	}
	h.inits[name] = cmd
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "booted\n" {
		return fmt.Errorf("host %s does not start: %w", name, err)
	}
	return nil
}

// install makes the directories of a host, with the programs and the names of the other hosts.
func (h *hosts) install(name, programs string) error {
	home := filepath.Join(h.dir, name)
	bin := filepath.Join(home, "changes/usr/local/bin")
	for _, dir := range []string{bin, filepath.Join(home, "changes/etc"), filepath.Join(home, "work"), filepath.Join(home, "root")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return errors.Join(
		os.CopyFS(bin, os.DirFS(programs)),
		os.WriteFile(filepath.Join(home, "changes/etc/hosts"), []byte(h.addresses()), 0o644),
	)
}

// addresses is the file with the addresses of all hosts.
func (h *hosts) addresses() string {
	all := "127.0.0.1 localhost\n"
	for _, name := range h.names {
		all += h.net.Addr(name) + " " + name + "\n"
	}
	return all
}

// enter is the command that runs another on a host.
func (h *hosts) enter(name string) []string {
	enter := []string{"nsenter", "--target", strconv.Itoa(h.inits[name].Process.Pid), "--mount", "--net"}
	if name == operator {
		return append(enter, "--wd="+h.dir)
	}
	return append(enter, "--pid", "--root", "--wd")
}

// tools is the directory with the programs by which the operator's commands reach the hosts.
func (h *hosts) tools() string { return filepath.Join(h.dir, "tools") }

// writeTools writes ssh, scp, and fail, which ends a host as a power failure does.
func (h *hosts) writeTools() error {
	var reach, end strings.Builder
	for _, name := range h.names {
		fmt.Fprintf(&reach, "%s) exec %s sh -c \"$*\" ;;\n", name, strings.Join(h.enter(name), " "))
		fmt.Fprintf(&end, "%s) kill -KILL %d ;;\n", name, h.inits[name].Process.Pid)
	}
	tools := map[string]string{
		"ssh":  "host=$1; shift\ncase $host in\n" + reach.String() + "esac\necho \"ssh: no host $host\" >&2; exit 255\n",
		"fail": "case $1 in\n" + end.String() + "esac\n",
		"scp": `[ "$1" != -r ] || shift
for to; do :; done
while [ $# -gt 1 ]; do
	tar -C "$(dirname "$1")" -cf - "$(basename "$1")" | ssh "${to%%:*}" tar --no-same-owner -C "${to#*:}" -xf -
	shift
done
`,
	}
	for name, text := range tools {
		if err := os.WriteFile(filepath.Join(h.tools(), name), []byte("#!/bin/sh\nset -e\n"+text), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// stop ends all hosts with their processes.
func (h *hosts) stop() error {
	var all []error
	for _, init := range h.inits {
		if err := init.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
			all = append(all, err)
		}
		_ = init.Wait() // it was killed
	}
	h.net.Close()
	return errors.Join(all...)
}
