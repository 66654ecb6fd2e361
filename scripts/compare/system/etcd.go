package system

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// etcd is three members, with the locks of its package concurrency: one key per client that wants the lock,
// under its session's lease, and a watch of the previous one.
type etcd struct{ program string }

func (etcd) Name() string  { return Etcd }
func (etcd) Title() string { return "etcd" }

func (e etcd) Needs() []Need { return []Need{{File: e.program}} }

func (e etcd) Version(ctx context.Context) (string, error) {
	return firstLine(exec.CommandContext(ctx, e.program, "--version"))
}

func (e etcd) Start(ctx context.Context, dir string) (*Cluster, error) {
	ports, err := freePorts(6)
	if err != nil {
		return nil, err
	}
	var cluster, endpoints []string
	for i := range 3 {
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", i+1, loopback(ports[2*i])))
		endpoints = append(endpoints, "http://"+loopback(ports[2*i+1]))
	}
	var commands []*exec.Cmd
	for i := range 3 {
		name, peer, _ := strings.Cut(cluster[i], "=")
		commands = append(commands, exec.Command(e.program, "--name", name, "--data-dir", filepath.Join(dir, name),
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--listen-client-urls", endpoints[i], "--advertise-client-urls", endpoints[i],
			"--initial-cluster", strings.Join(cluster, ","), "--initial-cluster-state", "new"))
	}
	dial := func() (Client, error) { return dialEtcd(endpoints) }
	return launch(ctx, dir, commands, dial, func(ctx context.Context) error { return etcdReady(ctx, endpoints) })
}

// etcdReady requires that every member knows the leader.
func etcdReady(ctx context.Context, endpoints []string) error {
	c, err := dialEtcd(endpoints)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, endpoint := range endpoints {
		status, err := c.Status(ctx, endpoint)
		if err != nil {
			return err
		}
		if status.Leader == 0 {
			return fmt.Errorf("%s knows no leader", endpoint)
		}
	}
	return nil
}

type etcdClient struct{ *clientv3.Client }

func dialEtcd(endpoints []string) (etcdClient, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	return etcdClient{c}, err
}

// Open can bound the wait for the session only by ending ctx, which also ends the session.
func (c etcdClient) Open(ctx context.Context, ttl time.Duration) (Session, error) {
	s, err := concurrency.NewSession(c.Client, concurrency.WithTTL(int(ttl.Seconds())), concurrency.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	return etcdSession{s}, nil
}

type etcdSession struct{ *concurrency.Session }

func (s etcdSession) Lock(ctx context.Context, name string) (Hold, error) {
	m := concurrency.NewMutex(s.Session, name)
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

func (s etcdSession) Close(context.Context) error { return s.Session.Close() }
