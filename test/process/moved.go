package process

import (
	"os"
	"path/filepath"
)

// UseDataDir gives a node whose process has ended another data directory.
func (c *Cluster) UseDataDir(id, dir string) {
	c.t.Helper()
	n := c.node(id)
	if n.alive() {
		c.t.Fatalf("%s runs still", id)
	}
	n.dir = dir
}

// SetAside moves the data directory of a node whose process has ended to another place, which it returns.
func (c *Cluster) SetAside(id string) (dir string) {
	c.t.Helper()
	dir = filepath.Join(c.opts.Dir, id+".aside")
	if err := os.Rename(c.node(id).dir, dir); err != nil {
		c.t.Fatal(err)
	}
	return dir
}

// Return starts a node that was retired, at new addresses and on an old data directory.
func (c *Cluster) Return(id, dir string) {
	c.t.Helper()
	seeds := c.peerAddrs()
	n := c.layOut(id)
	n.dir = dir
	n.others = []string{"--join", seeds}
	c.start(n)
}
