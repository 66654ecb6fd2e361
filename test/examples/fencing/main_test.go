package fencing

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/single"
)

// endpoint is the client port of the node, bank the file of the example's database.
var endpoint, bank string

// shortest is the TTL of the process that is stopped. The usual TTL is about 15 s; a short one keeps the test
// fast.
const shortest = 3 * time.Second

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "quorumlock-fencing-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bank = filepath.Join(dir, "bank")
	return single.Main(m, shortest, func(addr string) { endpoint = addr })
}

// open opens a database file, each time with separate connections.
func open(path string) (*sql.DB, error) {
	return sql.Open("sqlite3", "file:"+path+"?_busy_timeout=60000&_sync=OFF")
}

// machine runs a process that can be stopped as by SIGSTOP or by pausing its virtual machine: it sends and
// receives nothing, and no timer of its client runs.
type machine struct {
	running sync.RWMutex // write-locked while it is stopped
	booted  time.Time
}

func (m *machine) stop()   { m.running.Lock() }
func (m *machine) resume() { m.running.Unlock() }

// step blocks a goroutine of the machine while it is stopped.
func (m *machine) step() {
	m.running.RLock()
	defer m.running.RUnlock()
}

// Now returns the machine's clock, which also advances while it is stopped.
func (m *machine) Now() time.Duration { return time.Since(m.booted) }

// AfterFunc calls f when d has passed and the machine is running.
func (m *machine) AfterFunc(d time.Duration, f func()) client.Timer {
	return time.AfterFunc(d, func() { m.step(); f() })
}

func (m *machine) dial(ctx context.Context, addr string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &pausable{nc, m}, nil
}

// pausable is a connection of a machine.
type pausable struct {
	net.Conn
	machine *machine
}

func (p *pausable) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	p.machine.step()
	return n, err
}

func (p *pausable) Write(b []byte) (int, error) {
	p.machine.step()
	return p.Conn.Write(b)
}
