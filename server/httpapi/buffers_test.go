package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/httpapi/listener"
	"github.com/quorumlock/quorumlock/server/httpapi/response"
	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const smallBudget = 16 << 20

// servesPages returns a cluster whose first page of locks has about half a megabyte, the port of its leader,
// and the port's small budget for buffers.
func servesPages(t *testing.T) (*cluster, *port, *budget.Budget) {
	t.Helper()
	c, buffers := newCluster(t), budget.New(smallBudget)
	ttl := &wire.OpenSession{SecretHash: make([]byte, 32)}
	session := c.must(&wire.Command{Op: &wire.Command_OpenSession{OpenSession: ttl}}).GetSession().GetSessionId()
	value := []byte(strings.Repeat("v", 1<<10))
	for i := range 500 {
		c.must(&wire.Command{SessionId: session, Seq: uint64(i + 1), Op: &wire.Command_Acquire{
			Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: fmt.Sprintf("%s/%d", strings.Repeat("n", 300), i)}}, Value: value},
		}})
	}
	return c, start(t, c, "n1", func(cfg *Config) { cfg.Buffers = buffers }), buffers
}

// reluctant returns a client on one HTTP/2 connection that receives at most the first 64 KB of all its
// responses together until they are read.
func (p *port) reluctant() *http.Client {
	p.t.Helper()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &protocols, DisableCompression: true, HTTP2: &http.HTTP2Config{
		MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 1 << 10,
	}}
	p.t.Cleanup(tr.CloseIdleConnections)
	client := &http.Client{Transport: tr}
	resp, err := client.Get("http://" + p.addr + "/healthz") // later concurrent requests share this connection
	if err != nil {
		p.t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return client
}

// answers collects the responses to many requests.
type answers struct {
	mu      sync.Mutex
	bodies  []io.ReadCloser
	refused int
	broken  []error
}

func (a *answers) close() {
	for _, b := range a.bodies {
		_ = b.Close()
	}
}

// begin requests a list n times concurrently and reads no response.
func (a *answers) begin(ctx context.Context, client *http.Client, p *port, n int) {
	var asked sync.WaitGroup
	for range n {
		asked.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.addr+"/quorumlock.v1.LockService/List", strings.NewReader(`{"pageSize":1000}`))
			if err != nil {
				panic(err)
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := client.Do(req)
			a.mu.Lock()
			defer a.mu.Unlock()
			switch {
			case err != nil:
				a.broken = append(a.broken, err)
			case resp.StatusCode == http.StatusOK:
				a.bodies = append(a.bodies, resp.Body)
			default:
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusTooManyRequests {
					a.refused++
				}
			}
		})
	}
	asked.Wait()
}

// TestUnreadListsAreRefusedBeforeTheyAreGathered verifies that the connection with the largest share of the
// budget gets an error before its page is collected: no response is cut midway, and no more pages are
// collected than the budget has room for.
func TestUnreadListsAreRefusedBeforeTheyAreGathered(t *testing.T) {
	c, p, buffers := servesPages(t)
	var gathered int
	c.onFork(func(*fsm.Machine) { gathered++ })
	var got answers
	got.begin(t.Context(), p.reluctant(), p, 60)
	if len(got.broken) > 0 || got.refused == 0 || got.refused+len(got.bodies) != 60 {
		t.Errorf("%d answered, %d refused, %d broken off: %v", len(got.bodies), got.refused, len(got.broken), errors.Join(got.broken[:min(1, len(got.broken))]...))
	}
	c.onFork(nil)
	if gathered > len(got.bodies) {
		t.Errorf("%d lists were gathered for %d answers", gathered, len(got.bodies))
	}
	p.post("LockService/List", `{"pageSize":1}`).ok()
	got.close()
	eventually(t, "the memory to be given back", func() bool { return buffers.Used() <= 2*listener.ConnBytes })
}

// TestUnreadListsOfManyConnections verifies that connections that do not read their lists stay within the
// budget together, and are cut when an honest caller needs memory.
func TestUnreadListsOfManyConnections(t *testing.T) {
	_, p, buffers := servesPages(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all [4]answers
	var readers sync.WaitGroup
	for i := range all {
		client := p.reluctant()
		readers.Go(func() { all[i].begin(ctx, client, p, 40) })
	}
	for range 20 {
		p.post("LockService/List", `{"pageSize":1}`).ok()
		if used := buffers.Used(); used > smallBudget {
			t.Errorf("%d bytes are held, the budget has %d", used, smallBudget)
		}
	}
	readers.Wait()
	p.post("LockService/List", `{"pageSize":1000}`).ok()
	stop()
	for i := range all {
		all[i].close()
	}
	eventually(t, "the memory to be given back", func() bool { return buffers.Used() <= 6*listener.ConnBytes })
}

// TestUnfinishedBodiesAreCounted verifies that an incoming body is counted with the size it may reach.
func TestUnfinishedBodiesAreCounted(t *testing.T) {
	_, p, buffers := servesPages(t)
	var stalled []*io.PipeWriter
	var readers sync.WaitGroup
	var refused answers
	client := p.reluctant()
	for range 200 {
		r, w := io.Pipe()
		stalled = append(stalled, w)
		readers.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.addr+"/quorumlock.v1.LockService/List", r)
			if err != nil {
				panic(err)
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := client.Do(req)
			if err != nil {
				return // its connection was cut
			}
			_ = resp.Body.Close()
			refused.mu.Lock()
			defer refused.mu.Unlock()
			if resp.StatusCode == http.StatusTooManyRequests {
				refused.refused++
			}
		})
	}
	eventually(t, "bodies to be refused", func() bool {
		refused.mu.Lock()
		defer refused.mu.Unlock()
		return refused.refused > 0
	})
	if used := buffers.Used(); used > smallBudget {
		t.Errorf("%d bytes are held, the budget has %d", used, smallBudget)
	}
	started := time.Now()
	p.post("LockService/List", `{"pageSize":1}`).ok()
	if took := time.Since(started); took > time.Second {
		t.Errorf("an honest caller waited %v", took)
	}
	for _, w := range stalled {
		_ = w.CloseWithError(io.ErrUnexpectedEOF)
	}
	readers.Wait()
	eventually(t, "the memory to be given back", func() bool { return buffers.Used() <= 4*listener.ConnBytes })
}

// TestSmallReadsDuringAFlood verifies that small reads succeed while many connections, each holding little,
// exhaust the budget.
func TestSmallReadsDuringAFlood(t *testing.T) {
	_, p, buffers := servesPages(t)
	const body = 64 << 10
	head := fmt.Sprintf("POST /quorumlock.v1.LockService/List HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", body)
	takes := listener.ConnBytes + requestBytes + response.BodyFactor*body
	for range smallBudget/takes + 20 {
		conn, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the crowd to fill the budget", func() bool { return buffers.Used() > smallBudget-int64(takes) })
	for range 10 {
		p.post("LockService/List", `{"pageSize":1}`).ok()
	}
	if used := buffers.Used(); used > smallBudget {
		t.Errorf("%d bytes are held, the budget has %d", used, smallBudget)
	}
}
