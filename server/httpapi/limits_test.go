package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/server/httpapi/listener"
	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/server/internal/fairqueue"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestEveryProcedureTakesAPlace verifies that the places for requests are counted exactly, that some are
// reserved for operators, and that each is free again when its request ends, for whatever reason.
func TestEveryProcedureTakesAPlace(t *testing.T) {
	const most = operatorsShare * 2
	eachProcedure(t, func(st *stage, procedure string, p probe) {
		places := int64(most - most/operatorsShare)
		operators := !strings.HasPrefix(procedure, "SessionService/") && !strings.HasPrefix(procedure, "LockService/") && !strings.HasPrefix(procedure, "LeaseService/")
		if operators {
			places = most
		}
		taken := places - 1
		st.s.metrics.InFlight.Add(taken) // places of other connections
		defer st.s.metrics.InFlight.Add(-taken)
		a, first := st.after(procedure, p)
		got := st.ask(procedure, p.full(st.open("ann"))).reply()
		if got.status != http.StatusTooManyRequests || !strings.Contains(got.body, "max_requests") || got.fields()["code"] != "resource_exhausted" {
			t.Errorf("beyond the places: %d %s", got.status, got.body)
		}
		st.none()
		first.withdraw()
		a.reply()
		for range 2 {
			_, first = st.after(procedure, p)
			first.withdraw()
			synctest.Wait()
		}
		if n := st.s.metrics.InFlight.Load(); n != taken {
			t.Errorf("%d requests are under way, %d were", n, taken)
		}
		if n := st.conn.AddRequests(0); n != 0 {
			t.Errorf("%d requests of the connection", n)
		}
	}, limits(func(l *Limits) { l.MaxRequests = most }))
}

// TestEveryProcedureNeedsMemory verifies that without memory a request is refused before it has any effect,
// and that its memory is released when it ends.
func TestEveryProcedureNeedsMemory(t *testing.T) {
	buffers := map[string]*budget.Budget{}
	for procedure, p := range probes {
		buffers[procedure] = budget.New(16 << 20)
		t.Run(procedure, func(t *testing.T) {
			play(t, func(st *stage) {
				before := st.conn.Memory().Held()
				_, first := st.after(procedure, p)
				if held := st.conn.Memory().Held(); held-before < requestBytes {
					t.Errorf("%d bytes are held during a request", held)
				}
				first.withdraw()
				synctest.Wait()
				if held := st.conn.Memory().Held(); held > before+listener.ConnBytes {
					t.Errorf("%d bytes are held after a request, %d before", held, before)
				}
			}, func(c *Config) { c.Buffers = buffers[procedure] })
			if used := buffers[procedure].Used(); used != 0 {
				t.Errorf("%d bytes are held at the end", used)
			}
		})
	}
}

// TestPanicOfEveryProcedure verifies that a panic in a handler is answered and logged, and leaves no place
// taken.
func TestPanicOfEveryProcedure(t *testing.T) {
	eachProcedure(t, func(st *stage, procedure string, p probe) {
		if p.first == "Prove" || p.first == "Samples" { // their reader keeps its replica
			return
		}
		st.s.replica = panics{st.node}
		got := st.ask(procedure, p.full(st.open("ann"))).reply()
		st.s.replica = st.node
		if got.status != http.StatusInternalServerError || got.fields()["code"] != "internal" || strings.Contains(got.body, "cheese") {
			t.Errorf("answered %d %s", got.status, got.body)
		}
		if text := st.log.String(); !strings.Contains(text, "out of cheese") || !strings.Contains(text, procedure) {
			t.Errorf("log: %s", text)
		}
		a, first := st.after(procedure, p) // the server keeps working
		first.withdraw()
		a.reply()
	})
}

// panics is a replica whose first call panics.
type panics struct{ Replica }

func (panics) Serving() bool { panic("out of cheese") }

func (panics) Leader() *wire.LeaderHint { panic("out of cheese") }

// TestTimeToReadAnAnswer verifies that each piece of an answer has WriteTimeout from when it is written,
// however long its request took, and that there is no deadline before: the connection may still have that of
// an earlier answer.
func TestTimeToReadAnAnswer(t *testing.T) {
	eachProcedure(t, func(st *stage, procedure string, p probe) {
		ann := st.open("ann")
		a := st.ask(procedure, p.full(ann))
		first := st.expect(p.first)
		if !a.writeUntil.IsZero() {
			t.Error("a deadline of before stands")
		}
		time.Sleep(time.Second)
		first.withdraw()
		want := st.s.cfg.Limits.WriteTimeout
		if procedure == "LockService/Watch" {
			want = st.s.cfg.Limits.WatchTimeout
		}
		if a.reply(); time.Until(a.writeUntil) != want {
			t.Errorf("the answer has %v", time.Until(a.writeUntil))
		}
	})
}

// TestTurnsEnd verifies that the turn in a queue of reads or operator requests ends with its request.
func TestTurnsEnd(t *testing.T) {
	eachProcedure(t, func(st *stage, procedure string, p probe) {
		for _, how := range []string{"hung up", "answered", "refused"} {
			for range 8 { // more than the number of workers
				a, first := st.after(procedure, p)
				switch how {
				case "hung up":
					a.hangUp()
					synctest.Wait()
					first.withdraw()
				case "answered":
					if first.orders == nil {
						first.apply().answer()
					} else {
						first.returns(nil, nil)
					}
				default:
					first.withdraw()
				}
				if !a.answered() {
					if p.first == "TransferLeadership" { // it waits for the next leader
						time.Sleep(st.s.cfg.Limits.LeaderWait)
					}
					st.finish()
				}
				a.reply()
			}
			time.Sleep(st.s.cfg.Limits.RetryGrace)
			st.finish()
		}
	})
}

// TestTransferWaitsForTheNextLeader verifies that the answer to a transfer names the new leader: this node
// only once it serves again, and none if no leader is known in time.
func TestTransferWaitsForTheNextLeader(t *testing.T) {
	for next, want := range map[string]string{"n2": "n2", "n1": "n1", "": ""} {
		play(t, func(st *stage) {
			a, first := st.after("ClusterService/TransferLeadership", probes["ClusterService/TransferLeadership"])
			st.c.mu.Lock()
			st.c.serving = false
			st.c.mu.Unlock()
			first.returns(nil, nil)
			a.waits()
			time.Sleep(st.s.cfg.Limits.LeaderWait / 2)
			if next == "" {
				st.c.lead("")
				a.waits()
				time.Sleep(st.s.cfg.Limits.LeaderWait / 2)
			} else {
				st.c.lead(next)
				st.c.mu.Lock()
				st.c.serving = true
				st.c.mu.Unlock()
				time.Sleep(pollEvery)
			}
			if got := a.reply().ok(); got["leaderId"] != want {
				t.Errorf("%q leads: %v", next, got)
			}
		})
	}
}

// TestConnectionsBeyondTheirPlaces verifies that connections beyond the limit get an error and are closed,
// that health needs no place, and that connections are also refused when the budget is exhausted.
func TestConnectionsBeyondTheirPlaces(t *testing.T) {
	const most = 2
	play(t, func(st *stage) {
		ask := func(path, method string) reply {
			r, err := http.NewRequest(method, "http://n1"+path, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			return st.request(r).reply()
		}
		mine := st.conn
		conns := []*listener.Conn{mine}
		for i := range most + 2 {
			if i > 0 {
				st.conn = st.connect()
				conns = append(conns, st.conn)
			}
			got := ask("/metrics", http.MethodGet)
			if i < most {
				if got.status != http.StatusOK || got.header.Get("Connection") != "" {
					t.Errorf("connection %d: %d %v", i, got.status, got.header)
				}
				continue
			}
			if got.status != http.StatusServiceUnavailable || got.header.Get("Connection") != "close" || got.fields()["code"] != "resource_exhausted" {
				t.Errorf("connection %d: %d %v %s", i, got.status, got.header, got.body)
			}
		}
		for i := range 2 {
			st.conn = st.connect()
			conns = append(conns, st.conn)
			if got := ask("/healthz", http.MethodGet); got.status != http.StatusOK || got.header.Get("Connection") != "" {
				t.Errorf("health, connection %d: %d %v", i, got.status, got.header)
			}
			if got := ask("/metrics", http.MethodGet); got.status != http.StatusServiceUnavailable {
				t.Errorf("metrics beside the places: %d", got.status)
			}
		}
		for _, c := range conns[1:] {
			_ = c.Close()
			_ = c.Close() // counts once
		}
		st.conn = st.connect()
		if got := ask("/metrics", http.MethodGet); got.status != http.StatusOK {
			t.Errorf("after the others left: %d", got.status)
		}
		if open, established := st.s.connections.Len(); established != 2 || open != 2 {
			t.Errorf("%d open, %d established", open, established)
		}
		if text := fmt.Sprint(st.log); !strings.Contains(text, "too many connections") {
			t.Errorf("log: %s", text)
		}
		_ = mine.Close()
	}, limits(func(l *Limits) { l.MaxConnections = most }))
}

func (panics) Watch(context.Context, *wire.WatchRequest, func(*wire.Event) *wire.Event, func(*wire.WatchResponse) error) error {
	panic("out of cheese")
}

// TestReadsAndOperatorsWaitForTheirTurn verifies that reads and operator requests wait for their turn. If
// there is no room in their queue they are refused without any effect.
func TestReadsAndOperatorsWaitForTheirTurn(t *testing.T) {
	queues := fairqueue.NewQueues()
	queues.Close()
	eachProcedure(t, func(st *stage, procedure string, p probe) {
		service, _, _ := strings.Cut(procedure, "/")
		if p.first != "Prove" && service != "OperatorService" && service != "ClusterService" {
			return
		}
		a := st.ask(procedure, p.full(nil))
		if p.first == "Prove" {
			st.expect("Prove").apply().answer()
		}
		if message := a.reply().refused(http.StatusTooManyRequests, wire.Status_RESOURCE_EXHAUSTED); !strings.Contains(message, "wait for their responses") {
			t.Errorf("says %q", message)
		}
		st.none()
	}, func(c *Config) { c.Queues = queues })
}
