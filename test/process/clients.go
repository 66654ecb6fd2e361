package process

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/quorumlock/quorumlock/test/netns"
)

// StartQlock starts qlock where clients are, with the endpoints of all nodes. Its user waits for
// it.
func (c *Cluster) StartQlock(ctx context.Context, out *strings.Builder, args ...string) (cmd *exec.Cmd, err error) {
	args = append([]string{"--endpoints", strings.Join(c.Endpoints(), ",")}, args...)
	cmd = exec.CommandContext(ctx, filepath.Join(string(c.programs), "qlock"), args...)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, c.site.in(Clients, cmd.Start)
}

// CutClientsOff drops what goes between clients and some nodes, both ways, on a cluster whose
// nodes are apart.
func (c *Cluster) CutClientsOff(nodes ...string) (netns.Faults, error) {
	return c.site.net.Part(nodes, []string{Clients})
}

// ClientsAddr is the IP address that clients have.
func (c *Cluster) ClientsAddr() string { return c.site.net.Addr(Clients) }
