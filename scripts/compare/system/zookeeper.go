package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// ErrOneSession is returned for a second session on a connection that supports only one.
var ErrOneSession = errors.New("a connection is a session")

// Locations of a server's files in Debian's package.
const (
	zookeeperJar = "/usr/share/java/zookeeper.jar"
	zookeeperLog = "/etc/zookeeper/conf"
)

// zookeeper is three servers, with locks by the recipe of its documentation: an ephemeral sequential node per
// client that wants the lock, and a watch of the previous one.
type zookeeper struct{}

func (zookeeper) Name() string  { return ZooKeeper }
func (zookeeper) Title() string { return "ZooKeeper" }

func (zookeeper) Needs() []Need {
	return []Need{{"java", "default-jre-headless"}, {zookeeperJar, "zookeeper"}, {zookeeperLog, "zookeeper"}}
}

func (zookeeper) Version(ctx context.Context) (string, error) {
	return firstLine(exec.CommandContext(ctx, "java", "-cp", zookeeperLog+":"+zookeeperJar, "org.apache.zookeeper.version.VersionInfoMain"))
}

func (z zookeeper) Start(ctx context.Context, dir string) (*Cluster, error) {
	ports, err := freePorts(9)
	if err != nil {
		return nil, err
	}
	var endpoints []string
	var cluster strings.Builder
	for i := range 3 {
		endpoints = append(endpoints, loopback(ports[3*i]))
		fmt.Fprintf(&cluster, "server.%d=%s:%d\n", i+1, loopback(ports[3*i+1]), ports[3*i+2])
	}
	var commands []*exec.Cmd
	for i := range 3 {
		cmd, err := z.command(filepath.Join(dir, strconv.Itoa(i+1)), i+1, ports[3*i], cluster.String())
		if err != nil {
			return nil, err
		}
		commands = append(commands, cmd)
	}
	dial := func() (Client, error) { return &zookeeperClient{endpoints: endpoints}, nil }
	return launch(ctx, dir, commands, dial, func(ctx context.Context) error { return zookeeperReady(ctx, endpoints) })
}

// command writes a server's configuration: that of the documentation, with more than 60 connections from one
// address allowed, and without the admin web server, whose port all would share. The JVM is started as by
// Debian's zkServer.sh, with messages on the console.
func (zookeeper) command(dir string, id, port int, cluster string) (*exec.Cmd, error) {
	data, config := filepath.Join(dir, "data"), filepath.Join(dir, "zoo.cfg")
	text := fmt.Sprintf("tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\n"+
		"maxClientCnxns=0\nadmin.enableServer=false\n%s", data, port, cluster)
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(data, "myid"), []byte(strconv.Itoa(id)), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return exec.Command("java", "-Dzookeeper.root.logger=INFO,CONSOLE", "-Dzookeeper.log.dir="+dir,
		"-cp", zookeeperLog+":"+zookeeperJar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", config), nil
}

// zookeeperReady requires that every server is the leader or follows it.
func zookeeperReady(ctx context.Context, endpoints []string) error {
	for _, endpoint := range endpoints {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", endpoint)
		if err != nil {
			return err
		}
		defer conn.Close()
		if deadline, ok := ctx.Deadline(); ok {
			_ = conn.SetDeadline(deadline) // a socket's deadline can always be set
		}
		if _, err := io.WriteString(conn, "srvr"); err != nil {
			return err
		}
		answer, err := io.ReadAll(io.LimitReader(conn, 64<<10))
		if err != nil {
			return err
		}
		if !strings.Contains(string(answer), "Mode: ") {
			return fmt.Errorf("%s does not serve: %s", endpoint, answer)
		}
	}
	return nil
}

// Sizes of a connection's buffers in this program. The library's default of three megabytes is too much for
// ten thousand connections. The list of a thousand waiters for a lock fits.
const (
	sendBuffer    = 16 << 10
	receiveBuffer = 256 << 10
)

// zookeeperClient connects when its session is opened, since connection and session are the same.
type zookeeperClient struct {
	endpoints []string
	conn      *zk.Conn
}

func (c *zookeeperClient) Open(ctx context.Context, ttl time.Duration) (Session, error) {
	if c.conn != nil {
		return nil, ErrOneSession
	}
	conn, events, err := zk.Connect(c.endpoints, ttl, zk.WithLogger(silence{}), zk.WithLogInfo(false),
		zk.WithMaxConnBufferSize(sendBuffer), zk.WithMaxBufferSize(receiveBuffer))
	if err != nil {
		return nil, err
	}
	for {
		select {
		case event := <-events:
			if event.State == zk.StateHasSession {
				c.conn = conn
				return zookeeperSession{conn}, nil
			}
		case <-ctx.Done():
			conn.Close()
			return nil, context.Cause(ctx)
		}
	}
}

func (c *zookeeperClient) Close() error {
	if c.conn != nil {
		c.conn.Close()
	}
	return nil
}

type silence struct{}

func (silence) Printf(string, ...any) {}

type zookeeperSession struct{ conn *zk.Conn }

// Lock can only be cancelled by ending the session: the recipe's calls take no context.
func (s zookeeperSession) Lock(ctx context.Context, name string) (Hold, error) {
	defer context.AfterFunc(ctx, s.conn.Close)()
	l := zk.NewLock(s.conn, "/"+name, zk.WorldACL(zk.PermAll))
	if err := l.Lock(); err != nil {
		return nil, err
	}
	return zookeeperHold{s, l}, nil
}

func (s zookeeperSession) Close(context.Context) error {
	s.conn.Close()
	return nil
}

type zookeeperHold struct {
	zookeeperSession
	lock *zk.Lock
}

func (h zookeeperHold) Unlock(ctx context.Context) error {
	defer context.AfterFunc(ctx, h.conn.Close)()
	return h.lock.Unlock()
}
