package process_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/disk"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport/pki"
)

// roomy are flags of nodes about which doctor finds nothing on a small machine.
func roomy(t *testing.T) []string {
	return []string{"--max-connections", "500", "--http-max-connections", "500", "--memory-limit", "536870912", "--backup-dir", t.TempDir(),
		"--heartbeat-timeout", "1500ms", "--election-timeout", "1500ms", "--min-ttl", "9s", "--default-ttl", "15s"}
}

// examination is the cluster as an operator sees it.
type examination struct {
	t *testing.T
	c *process.Cluster
}

// run runs qlock, and returns an error unless it exits with the code and says all of that.
func (e examination) run(ctx context.Context, verb string, code int, says ...string) error {
	out, err := programs.Qlock(ctx, "--endpoints", strings.Join(e.c.Endpoints(), ","), verb)
	if (err == nil) != (code == 0) || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("exit code %d:", code)) {
		return fmt.Errorf("qlock %s: %w, want exit code %d\n%s", verb, errors.Join(err, errors.New("ended")), code, out)
	}
	for _, text := range says {
		if !strings.Contains(out, text) {
			return fmt.Errorf("qlock %s does not say %q:\n%s", verb, text, out)
		}
	}
	return nil
}

// eventually runs qlock until it exits with the code and says all of that. Nodes need a moment to notice a failure.
func (e examination) eventually(verb string, code int, says ...string) {
	e.t.Helper()
	e.c.Await(fmt.Sprintf("exit code %d of %s", code, verb), 2*process.WaitTimeout, func(ctx context.Context) error { return e.run(ctx, verb, code, says...) })
}

// slowDisk runs doctor until it reports a node's disk. Normally that is a warning. On a loaded machine a sync can take
// twice as long, since it waits for another one, and is critical.
func (e examination) slowDisk(node, timeout string) {
	e.t.Helper()
	e.c.Await("doctor to report the slow disk", 2*process.WaitTimeout, func(ctx context.Context) error {
		found := e.run(ctx, "doctor", 1, "WARNING  "+node+": a sync of the disk took", "more than half of the heartbeat timeout of "+timeout)
		if found == nil {
			return nil
		}
		return e.run(ctx, "doctor", 2, "CRITICAL  "+node+": a sync of the disk took", "as long as the heartbeat timeout of "+timeout)
	})
}

// TestDoctorAndCheck examines a healthy cluster, one with a slow disk, with a node that is down, and without a leader.
func TestDoctorAndCheck(t *testing.T) {
	beside(t)
	e := examination{t, process.StartWith(t, programs, process.Options{Nodes: 3, Flags: roomy(t)})}
	e.eventually("doctor", 0, "3 of 3 nodes examined, 0 findings")
	e.eventually("check", 0, "QUORUMLOCK OK - leader ", "3 members, all reachable | members_down=0;1;2 ")

	if disk.NoInjection() == nil {
		slow := e.c.Inject("n2", disk.Syncs, disk.Slow(800*time.Millisecond))
		e.slowDisk("n2", "1.5s")
		slow.Lift()
		e.c.Kill9("n2") // it would report these syncs for minutes
		e.c.Restart("n2")
		e.eventually("check", 0, "3 members, all reachable")
	}
	e.c.Kill9("n3")
	e.eventually("doctor", 1, "2 of 3 nodes examined", "WARNING  1 member unreachable: n3")
	e.eventually("check", 1, "QUORUMLOCK WARNING - 1 member unreachable: n3")
	e.c.Kill9("n2")
	e.eventually("doctor", 2, "no leader: 1 of 3 nodes examined", "CRITICAL  there is no leader", "2 members unreachable: n2, n3")
	e.eventually("check", 2, "QUORUMLOCK CRITICAL - there is no leader")
}

// TestDoctorFindsCertificates examines a cluster with TLS, in which one certificate expires soon and names another host.
func TestDoctorFindsCertificates(t *testing.T) {
	beside(t)
	c := process.StartWith(t, programs, process.Options{Nodes: 3, Flags: roomy(t), Secure: []string{"op"}})
	examine := func(says ...string) {
		c.Await(strings.Join(says, ", "), 2*process.WaitTimeout, func(ctx context.Context) error {
			out, err := c.Qlock(ctx, "op", nil, "doctor")
			for _, text := range says {
				if !strings.Contains(out, text) {
					return fmt.Errorf("%w\n%s", err, out)
				}
			}
			return nil
		})
	}
	examine("3 of 3 nodes examined, 0 findings")
	if _, err := pki.Renew(c.Certificates(), []string{"nodes/n2/server"}, 0, pki.ValidFor(10*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	examine("1 finding", "WARNING  n2: a certificate expires in 9d", "qlock tls renew")
}
