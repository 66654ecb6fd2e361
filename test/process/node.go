package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/test/proxy"
)

// node is one node of a cluster. Its ID, addresses and files outlive its processes.
type node struct {
	id                 string
	site               *site
	peer, client, http string                               // addresses for other nodes and clients
	redis              string                               // for Redis clients; empty if it has no such port
	listen             struct{ peer, client, redis string } // behind the proxies, if there are any
	proxies            struct{ peer, client, redis *proxy.Proxy }
	dir                string   // data directory
	log                string   // log file of all of its processes
	stderr             *os.File // instead of the log file, if not nil
	others             []string // flags that say where the other nodes are

	programs Programs // of later processes; empty means those of the cluster
	running  *running // the last process; nil before the first
	env      []string // further variables of its processes
}

// running is a process and its end.
type running struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// assignAddresses assigns addresses to the node.
func (n *node) assignAddresses(o Options) (err error) {
	if err := n.site.join(n.id); err != nil {
		return err
	}
	wanted := []*string{&n.peer, &n.client, &n.http}
	if o.Redis {
		wanted = append(wanted, &n.redis)
	}
	for _, addr := range wanted {
		if *addr, err = n.site.take(n.id); err != nil {
			return err
		}
	}
	n.listen.peer, n.listen.client, n.listen.redis = n.peer, n.client, n.redis
	if !o.Proxied {
		return nil
	}
	if n.proxies.peer, err = n.behindProxy(&n.listen.peer); err != nil {
		return err
	}
	if n.proxies.client, err = n.behindProxy(&n.listen.client); err != nil || !o.Redis {
		return err
	}
	n.proxies.redis, err = n.behindProxy(&n.listen.redis)
	return err
}

// behindProxy puts a proxy at an address and moves the node to another.
func (n *node) behindProxy(addr *string) (*proxy.Proxy, error) {
	l, err := n.site.listen(n.id, *addr)
	if err != nil {
		return nil, err
	}
	if *addr, err = n.site.take(n.id); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	target, dial := *addr, n.site.dialer(n.id)
	return proxy.New(l, func(ctx context.Context) (net.Conn, error) { return dial(ctx, target) }), nil
}

// closeProxies closes the proxies.
func (n *node) closeProxies() {
	for _, p := range []*proxy.Proxy{n.proxies.peer, n.proxies.client, n.proxies.redis} {
		if p != nil {
			p.Close()
		}
	}
}

// start starts the node's process.
func (n *node) start(qlockd string, flags []string, walls bool) error {
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	args := slices.Concat([]string{
		"--id", n.id, "--data-dir", n.dir,
		"--peer-addr", n.listen.peer, "--client-addr", n.listen.client, "--http-addr", n.http,
		"--advertise-peer-addr", n.peer, "--advertise-client-addr", n.client,
	}, n.others, flags)
	if n.redis != "" {
		args = append(args, "--redis-addr", n.listen.redis)
	}
	if n.site.net != nil {
		args = append(args, "--insecure") // its network has no other users
	}
	cmd := exec.Command(qlockd, args...)
	cmd.Dir = filepath.Dir(n.dir)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	cmd.Env = append(cmd.Env, n.env...)
	if walls {
		if err := n.setWall(0); err != nil {
			return errors.Join(err, log.Close())
		}
		cmd.Env = append(cmd.Env, wallVariable+"="+n.wall())
	}
	cmd.Stderr = log
	if n.stderr != nil {
		cmd.Stderr = n.stderr
	}
	if err := n.site.in(n.id, cmd.Start); err != nil {
		_ = log.Close()
		return err
	}
	r := &running{cmd: cmd, done: make(chan struct{})}
	n.running = r
	go func() {
		_ = cmd.Wait() // the result is in the process state
		_ = log.Close()
		close(r.done)
	}()
	return nil
}

// signal sends a signal to the node's process, by its handle.
func (n *node) signal(sig syscall.Signal) error {
	if n.running == nil {
		return fmt.Errorf("%s was never started", n.id)
	}
	return n.running.cmd.Process.Signal(sig)
}

// alive reports whether the node has a process that has not been waited for yet.
func (n *node) alive() bool {
	if n.running == nil {
		return false
	}
	select {
	case <-n.running.done:
		return false
	default:
		return true
	}
}

// wait waits for the end of the node's process and returns its exit code, or -1 after a signal.
func (n *node) wait(within time.Duration) (code int, err error) {
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-n.running.done:
		return n.running.cmd.ProcessState.ExitCode(), nil
	case <-late.C:
		return 0, fmt.Errorf("%s (pid %d) has not ended within %v", n.id, n.running.cmd.Process.Pid, within)
	}
}
