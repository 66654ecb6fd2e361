package process

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/quorumlock/quorumlock/test/netns"
)

// StartQlock starts qlock on the clients' host, with the endpoints of all nodes. The caller must wait for the
// command.
func (c *Cluster) StartQlock(ctx context.Context, out *strings.Builder, args ...string) (cmd *exec.Cmd, err error) {
	args = append([]string{"--endpoints", strings.Join(c.Endpoints(), ",")}, args...)
	cmd = exec.CommandContext(ctx, filepath.Join(string(c.programs), "qlock"), args...)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, c.site.in(Clients, cmd.Start)
}

// CutClientsOff drops packets between clients and some nodes, in both directions. The cluster must have
// Options.Apart.
func (c *Cluster) CutClientsOff(nodes ...string) (netns.Faults, error) {
	return c.site.net.Part(nodes, []string{Clients})
}

// ClientsAddr returns the clients' IP address.
func (c *Cluster) ClientsAddr() string { return c.site.net.Addr(Clients) }
