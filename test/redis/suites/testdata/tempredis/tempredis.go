// Package tempredis replaces the package of this name in the tests of redsync. Instead of starting a redis-server, it
// takes the next database of the servers in the environment, so that each server of the tests has its own keys:
//
//	SERVERS    addresses, separated by commas
//	DATABASES  number of databases of each of them
package tempredis

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Config is the configuration of a server, of which only the port is used.
type Config map[string]string

// Server is one database, at a Unix socket and, if the configuration has one, at a port on loopback.
type Server struct {
	addr      string
	database  int
	dir       string
	listeners []net.Listener
}

var (
	mu      sync.Mutex
	started int
)

// Start takes the next database.
func Start(config Config) (*Server, error) {
	addrs := strings.Split(os.Getenv("SERVERS"), ",")
	databases, err := strconv.Atoi(os.Getenv("DATABASES"))
	if err != nil {
		return nil, err
	}
	mu.Lock()
	n := started % (len(addrs) * databases)
	started++
	mu.Unlock()
	dir, err := os.MkdirTemp("", "tempredis")
	if err != nil {
		return nil, err
	}
	s := &Server{addr: addrs[n/databases], database: n % databases, dir: dir}
	err = s.listen("unix", s.Socket())
	if port := config["port"]; port != "" {
		err = errors.Join(err, s.listen("tcp", "127.0.0.1:"+port))
	}
	return s, err
}

// Socket returns the path of the socket.
func (s *Server) Socket() string { return filepath.Join(s.dir, "redis.sock") }

// Term stops listening.
func (s *Server) Term() error {
	for _, l := range s.listeners {
		l.Close()
	}
	return os.RemoveAll(s.dir)
}

func (s *Server) listen(network, addr string) error {
	l, err := net.Listen(network, addr)
	if err != nil {
		return err
	}
	s.listeners = append(s.listeners, l)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			go s.serve(conn)
		}
	}()
	return nil
}

// serve forwards a connection, after it has selected the database.
func (s *Server) serve(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", s.addr)
	if err != nil {
		return
	}
	defer far.Close()
	fmt.Fprintf(far, "*2\r\n$6\r\nSELECT\r\n$%d\r\n%d\r\n", len(strconv.Itoa(s.database)), s.database)
	answers := bufio.NewReader(far)
	if line, err := answers.ReadString('\n'); err != nil || line != "+OK\r\n" {
		fmt.Fprintf(os.Stderr, "select database %d: %q, %v\n", s.database, line, err)
		return
	}
	go func() {
		io.Copy(far, near)
		far.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(near, answers)
}
