package hostile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/hostile/attacker"
	"github.com/quorumlock/quorumlock/transport"
)

// niceness of the attackers. They share a machine with the nodes, but must not take their cores, which remote
// attackers could not do either.
const niceness = "10"

// attackerProcess is an attack in progress, in a separate process.
type attackerProcess struct {
	t       testing.TB
	cmd     *exec.Cmd
	input   io.Closer // closing it ends the attack
	errors  bytes.Buffer
	started time.Time

	mu     sync.Mutex
	last   attacker.Report
	most   attacker.Report // the largest Unread and Open, and of Open by port
	ended  bool
	closed chan struct{}
}

// startAttack returns once the attack is prepared.
func startAttack(t testing.TB, c *cluster, plan attacker.Plan) *attackerProcess {
	t.Helper()
	plan.Nodes = []attacker.Node{c.leader.endpoints()}
	for _, n := range c.nodes {
		if n != c.leader {
			plan.Nodes = append(plan.Nodes, n.endpoints())
		}
	}
	if c.certs != "" {
		who := honestIdentity
		if c.protected == withPolicy {
			who = attackingIdentity
		}
		pair := filepath.Join(c.certs, "clients", who, "client")
		plan.Identity = transport.TLSFiles{Cert: pair + ".crt", Key: pair + ".key", CA: filepath.Join(c.certs, "ca.crt")}
	}
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	p := &attackerProcess{t: t, cmd: exec.Command("nice", "-n", niceness, attackerProgram, string(text)), closed: make(chan struct{})}
	p.cmd.Stderr = &p.errors
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.input, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.stop() })
	go p.read(out)
	await(t, "the attacker's preparations", 3*timeout, p.prepared)
	p.started = time.Now()
	return p
}

func (n *node) endpoints() attacker.Node {
	return attacker.Node{Client: n.addr[clientPort], Peer: n.addr[peerPort], HTTP: n.addr[httpPort], Redis: n.addr[redisPort]}
}

func (p *attackerProcess) read(out io.Reader) {
	defer close(p.closed)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var report attacker.Report
		if json.Unmarshal(lines.Bytes(), &report) == nil {
			p.take(report)
		}
	}
}

func (p *attackerProcess) take(r attacker.Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = r
	p.most.Open, p.most.Unread = max(p.most.Open, r.Open), max(p.most.Unread, r.Unread)
	if p.most.Ports == nil {
		p.most.Ports = map[string]int64{}
	}
	for port, open := range r.Ports {
		p.most.Ports[port] = max(p.most.Ports[port], open)
	}
}

var errUnprepared = errors.New("not ready")

func (p *attackerProcess) prepared(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last.Ready {
		return errUnprepared
	}
	return nil
}

// achieved returns what the attack has done since it was ready: totals, and the maxima of open connections
// and unread bytes.
func (p *attackerProcess) achieved() attacker.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.last
	r.Open, r.Unread, r.Ports = p.most.Open, p.most.Unread, maps.Clone(p.most.Ports)
	return r
}

// stop ends the attack and its process.
func (p *attackerProcess) stop() attacker.Report {
	p.t.Helper()
	if !p.ended {
		p.ended = true
		_ = p.input.Close()
		<-p.closed
		if err := p.cmd.Wait(); err != nil {
			p.t.Errorf("the attacker: %v: %s", err, p.errors.String())
		}
	}
	return p.achieved()
}
