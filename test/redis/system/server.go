package system

import (
	"context"
	"io"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/test/ports"
)

// Databases is the number of databases of a server. The suites use each as a server.
const Databases = 64

const (
	// readyTimeout is how long a server may take to start or to follow another.
	readyTimeout = 15 * time.Second
	// pollInterval is the interval between two checks of a condition.
	pollInterval = 5 * time.Millisecond
)

// Server is one redis-server without persistence, as caches and locks often run it. Its entries are its address, and
// a balancer in front of it.
type Server struct {
	// Addr is where it listens.
	Addr     string
	t        testing.TB
	dir      string
	cmd      *exec.Cmd
	balancer *Balancer
}

// StartServer starts a redis-server, which ends with the test.
func StartServer(t testing.TB) *Server {
	t.Helper()
	s := &Server{Addr: ports.For(t, 1)[0], t: t, dir: t.TempDir()}
	t.Cleanup(s.Kill)
	s.start()
	s.balancer = Balance(t, s.Addr)
	return s
}

// Entries returns the server's own address and the balancer.
func (s *Server) Entries() [2]Entry {
	return [2]Entry{{"server", s.Addr}, {"balancer", s.balancer.Addr}}
}

// Interrupt ends all connections of clients.
func (s *Server) Interrupt() {
	s.t.Helper()
	s.Do("CLIENT", "KILL", "TYPE", "normal")
	s.balancer.Interrupt()
}

// Fail kills the server and starts it again. It comes back empty.
func (s *Server) Fail() {
	s.t.Helper()
	s.Kill()
	s.start()
}

// Kill kills the server with SIGKILL and waits for its end.
func (s *Server) Kill() {
	if s.cmd == nil || s.cmd.ProcessState != nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may just have ended on its own
	_ = s.cmd.Wait()         // the result is the signal
}

// Do executes one command and returns its answer.
func (s *Server) Do(args ...any) any {
	s.t.Helper()
	answer, err := s.do(s.t.Context(), args...)
	if err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return answer
}

// Await executes a command until its answer is as wanted.
func (s *Server) Await(what string, wanted func(answer any) bool, args ...any) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), readyTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		answer, err := s.do(ctx, args...)
		if err == nil && wanted(answer) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.t.Fatalf("%s: not within %v: %v, %v", what, readyTimeout, answer, err)
		}
	}
}

func (s *Server) do(ctx context.Context, args ...any) (any, error) {
	conn := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	defer conn.Close()
	return conn.Do(ctx, args...).Result()
}

// start starts the process.
func (s *Server) start() {
	s.t.Helper()
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.cmd = exec.Command("redis-server", "--bind", host, "--port", port, "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--databases", strconv.Itoa(Databases), "--repl-diskless-sync-delay", "0")
	s.cmd.Stdout = io.Discard
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("start redis-server: %v: install it with apt-get install redis-server", err)
	}
	s.Await("redis-server at "+s.Addr, func(answer any) bool { return answer == "PONG" }, "PING")
}
