package tunnel

import (
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/test/scrape"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestTunnelPassesBytesBothWays(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		r := newRig(t, func(c *Config) { c.Registry = registry })
		e := r.connect("10.0.0.1")
		carries(t, e.client, e.leader, "a question")
		carries(t, e.leader, e.client, "an answer!!")
		if r.told[0] != "ann" {
			t.Errorf("the leader was told of the client %q", r.told)
		}
		counts(t, registry, map[string]float64{"tunnels": 1, "tunnels_opened_total": 1, "tunnel_bytes_total up": 10, "tunnel_bytes_total down": 11})
		_, _ = e.client.Close(), e.leader.Close()
		<-e.done
		counts(t, registry, map[string]float64{"tunnels": 0, "tunnels_opened_total": 1, "tunnel_bytes_total up": 10, "tunnel_bytes_total down": 11,
			"tunnels_ended_total UNSPECIFIED": 1})
		if _, err := r.Open(t.Context(), from("10.0.0.1"), nil, "n3"); err == nil {
			t.Error("a tunnel to a follower")
		}
		counts(t, registry, map[string]float64{"tunnels": 0, "tunnels_opened_total": 1, "tunnel_bytes_total up": 10, "tunnel_bytes_total down": 11,
			"tunnels_ended_total UNSPECIFIED": 1, "tunnels_refused_total FAILED_PRECONDITION": 1})
	})
}

// counts checks that the metrics have exactly these values, except ends that have not happened, which are 0.
func counts(t *testing.T, registry prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	got := scrape.Values(t, registry)
	maps.DeleteFunc(got, func(key string, n float64) bool { return strings.HasPrefix(key, "tunnels_ended_total") && n == 0 })
	if !maps.Equal(got, want) {
		t.Errorf("metrics %v, want %v", got, want)
	}
}

// TestHalfClosedClientIsAnswered verifies that a client that has closed its sending side still gets
// answers for a moment.
func TestHalfClosedClientIsAnswered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		e := r.connect("10.0.0.1")
		if err := e.client.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := e.leader.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the leader reads on: %v", err)
		}
		carries(t, e.leader, e.client, "the last word")
		time.Sleep(parting + time.Millisecond)
		e.isOver(t)
	})
}

// TestLeadersLastFrameArrives verifies that the leader's last frame arrives before the end, even while the
// client keeps sending.
func TestLeadersLastFrameArrives(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		e := r.connect("10.0.0.1")
		_, _ = e.leader.Write(frame(t, 100_000))
		_ = e.leader.Close()
		synctest.Wait()
		_, _ = e.client.Write(make([]byte, 100))
		if _, frames := lastWord(t, e.client); frames != 1 {
			t.Errorf("%d frames arrived, want the leader's last", frames)
		}
		_ = e.client.Close()
		e.isOver(t)
	})
}

func TestRefusedTunnels(t *testing.T) {
	moved := errors.New("moved")
	for name, c := range map[string]struct {
		prepare func(*rig)
		to      string
		status  wire.Status_Code
		says    string
	}{
		"without a leader":      {func(r *rig) { r.leader = &wire.LeaderHint{} }, "n1", wire.Status_UNAVAILABLE, "no leader"},
		"to the node itself":    {func(r *rig) { r.leader = &wire.LeaderHint{Id: "n2"} }, "n2", wire.Status_FAILED_PRECONDITION, "this node leads"},
		"to another leader":     {func(*rig) {}, "n3", wire.Status_FAILED_PRECONDITION, `"n1" leads`},
		"while the node stops":  {func(r *rig) { r.Close() }, "n1", wire.Status_UNAVAILABLE, "shutting down"},
		"switched off":          {func(r *rig) { r.Relay = nil }, "n1", wire.Status_UNSUPPORTED, "--no-tunnels"},
		"to one out of reach":   {func(r *rig) { r.leader = &wire.LeaderHint{Id: "n3"} }, "n3", wire.Status_UNAVAILABLE, errNoWay.Error()},
		"to one that is silent": {func(r *rig) { r.net.Isolate("n1", "n2") }, "n1", wire.Status_UNAVAILABLE, context.DeadlineExceeded.Error()},
		"to one that moved meanwhile": {func(r *rig) {
			r.net.Isolate("n1", "n2")
			r.dialled = func() { go r.elect(&wire.LeaderHint{Id: "n3", Term: 8}) }
		}, "n1", wire.Status_UNAVAILABLE, moved.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				relay := r.Relay
				defer func() { r.Relay = relay }()
				c.prepare(r)
				started := time.Now()
				_, err := r.Open(t.Context(), from("10.0.0.1"), nil, c.to)
				refused, ok := errors.AsType[*Refusal](err)
				if !ok || refused.Status != c.status || !strings.Contains(refused.Message, c.says) {
					t.Errorf("%v, want %v and %q", err, c.status, c.says)
				}
				if took := time.Since(started); took > time.Second || c.says == moved.Error() && took > 0 {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

func TestTunnelsAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Max = 4 })
		full := func(ip, says string) {
			t.Helper()
			_, err := r.Open(t.Context(), from(ip), nil, "n1")
			if refused, ok := errors.AsType[*Refusal](err); !ok || refused.Status != wire.Status_RESOURCE_EXHAUSTED || !strings.Contains(refused.Message, says) {
				t.Errorf("one more from %s: %v, want %q", ip, err, says)
			}
		}
		first := r.connect("10.0.0.1")
		r.connect("10.0.0.1")
		full("10.0.0.1", "from 10.0.0.1")
		third := r.connect("10.0.0.2")
		r.connect("2001:db8::1")
		full("10.0.0.3", "its 4 tunnels")
		_ = first.client.Close()
		<-first.done
		again := r.connect("10.0.0.1")
		if n := r.Len(); n != 4 {
			t.Errorf("%d tunnels", n)
		}
		_ = third.client.Close()
		<-third.done
		full("10.0.0.1", "from 10.0.0.1")
		_ = again.client.Close()
		<-again.done
		if want := map[netip.Addr]int{netip.MustParseAddr("10.0.0.1"): 1, netip.MustParseAddr("2001:db8::"): 1}; !maps.Equal(r.sources, want) {
			t.Errorf("the sources that are counted: %v, want %v", r.sources, want)
		}
	})
}

// TestTunnelsWithoutASource verifies that clients without an IP address are not counted as one address.
func TestTunnelsWithoutASource(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Max = 4 })
		for range 4 {
			tunnel, err := r.Open(t.Context(), named("shop"), nil, "n1")
			if err != nil {
				t.Fatal(err)
			}
			defer tunnel.Discard()
		}
	})
}

func TestMetricsOfTwoRelays(t *testing.T) {
	registry := prometheus.NewRegistry()
	if _, err := New(Config{Registry: registry}); err != nil {
		t.Error(err)
	}
	if _, err := New(Config{Registry: registry}); err == nil {
		t.Error("two relays have the same metrics")
	}
}

// TestDisconnectedClient verifies that the tunnel of a disconnected client ends without waiting for either
// side.
func TestDisconnectedClient(t *testing.T) {
	hidden := func(c *Config) {
		dial := c.Dial
		c.Dial = func(ctx context.Context, leader *wire.LeaderHint, caller *wire.Caller) (net.Conn, error) {
			conn, err := dial(ctx, leader, caller)
			return struct{ net.Conn }{conn}, err
		}
	}
	for name, c := range map[string]struct {
		config func(*Config)
		leave  func(r *rig, e *ends)
	}{
		"connection reset": {nil, func(r *rig, _ *ends) { r.net.Reject("shop", "n2") }},
		"leader's connection has no half to be closed": {hidden, func(_ *rig, e *ends) { _ = e.client.(interface{ CloseWrite() error }).CloseWrite() }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := newRig(t, c.config)
				e := r.connect("10.0.0.1")
				started := time.Now()
				c.leave(r, e)
				<-e.done
				if took := time.Since(started); took > 0 {
					t.Errorf("the tunnel went on for %v", took)
				}
			})
		})
	}
}

// TestFewTunnelsAreOpenedAtOnce verifies that few tunnels are opened concurrently, and that the others wait
// for their turn, with a timeout.
func TestFewTunnelsAreOpenedAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.Isolate("n1", "n2")
		results := make(chan error, 3*maxOpening)
		for range cap(results) {
			go func() {
				_, err := r.Open(context.Background(), from("10.0.0.1"), nil, "n1")
				results <- err
			}()
		}
		synctest.Wait()
		r.mu.Lock()
		if n := len(r.told); n != maxOpening {
			t.Errorf("%d are being opened, want %d", n, maxOpening)
		}
		r.mu.Unlock()
		for range cap(results) {
			if err := <-results; err == nil {
				t.Error("a tunnel is open")
			}
		}
	})
}

// TestTunnelsCountAgainstTheBuffers verifies that a tunnel's memory is counted while it exists, and that the
// largest account is cut.
func TestTunnelsCountAgainstTheBuffers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		buffers := budget.New(2*tunnelBytes + 1)
		r := newRig(t, func(c *Config) { c.Buffers = buffers })
		first := r.connect("10.0.0.1")
		second := r.connect("10.0.0.2")
		if used := buffers.Used(); used != 2*tunnelBytes {
			t.Errorf("%d bytes are counted, want %d", used, 2*tunnelBytes)
		}
		_, err := r.Open(t.Context(), from("10.0.0.3"), nil, "n1")
		if refused, ok := errors.AsType[*Refusal](err); !ok || refused.Status != wire.Status_RESOURCE_EXHAUSTED {
			t.Errorf("a third one: %v", err)
		}
		small, err := buffers.Open(100, func() {})
		if err != nil {
			t.Fatalf("a connection that takes little: %v", err)
		}
		cut, open := first.client, second
		if _ = cut.SetReadDeadline(time.Now().Add(time.Second)); !errorIs(cut, wire.Goodbye_RESOURCE_EXHAUSTED, t) {
			cut, open = second.client, first
			if !errorIs(cut, wire.Goodbye_RESOURCE_EXHAUSTED, t) {
				t.Error("nobody was cut for it")
			}
		}
		carries(t, open.client, open.leader, "goes on")
		small.Close()
		_, _ = first.client.Close(), second.client.Close()
		<-first.done
		<-second.done
		if used := buffers.Used(); used != 0 {
			t.Errorf("%d bytes are counted after the end", used)
		}
	})
}

// errorIs reports whether the client's connection ends with a goodbye of that code.
func errorIs(client net.Conn, want wire.Goodbye_Code, t *testing.T) bool {
	t.Helper()
	code, _ := lastWord(t, client)
	return code == want
}

func TestTunnelEndsWhenTheLeaderMoves(t *testing.T) {
	for name, next := range map[string]*wire.LeaderHint{
		"to another node": {Id: "n3", Term: 8},
		"to this node":    {Id: "n2", Term: 8},
		"to another node of its term, after a disk went back": {Id: "n3", Term: 7},
		"to nobody":             {},
		"to a later term of it": {Id: "n1", Term: 9},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				e := r.connect("10.0.0.1")
				r.elect(&wire.LeaderHint{Id: "n1", Term: 7, ClientAddr: "elsewhere"})
				carries(t, e.leader, e.client, string(frame(t, 10)))
				r.elect(next)
				moved := time.Now()
				if code, _ := lastWord(t, e.client); code != wire.Goodbye_TUNNEL_ENDED || time.Since(moved) > 0 {
					t.Errorf("goodbye %v, and the end after %v", code, time.Since(moved))
				}
				if _, err := io.Copy(io.Discard, e.leader); err != nil && !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
				_ = e.client.Close()
				e.isOver(t)
			})
		})
	}
}

func TestGoodbyeStandsBetweenFrames(t *testing.T) {
	for name, started := range map[string]int{"in a header": 2, "behind a header": 4, "in a message": 5000} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				e := r.connect("10.0.0.1")
				whole := frame(t, 40_000)
				_, _ = e.leader.Write(whole[:started])
				synctest.Wait()
				r.Close()
				synctest.Wait()
				go func() { _, _ = e.leader.Write(append(whole[started:], frame(t, 10)...)) }()
				if code, frames := lastWord(t, e.client); code != wire.Goodbye_SHUTDOWN || frames != 2 {
					t.Errorf("goodbye %v after %d frames, want SHUTDOWN after the one that was begun", code, frames)
				}
				_ = e.client.Close()
				e.isOver(t)
			})
		})
	}
}

// TestTunnelEndsWithinHalfAFrame verifies that a tunnel does not wait long for the rest of a frame.
func TestTunnelEndsWithinHalfAFrame(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		e := r.connect("10.0.0.1")
		_, _ = e.leader.Write(frame(t, 100)[:50])
		synctest.Wait()
		r.Close()
		if got, _ := io.ReadAll(e.client); len(got) != 50 {
			t.Errorf("%d bytes arrived, want half a frame and nothing in it", len(got))
		}
		time.Sleep(2*parting + time.Millisecond)
		e.isOver(t)
	})
}

// TestSlowReadersHoldTheirWritersUp verifies that data does not pile up in the node: a writer waits for a
// slow reader.
func TestSlowReadersHoldTheirWritersUp(t *testing.T) {
	const much = 8 << 20
	// most is what the tunnel and its two network connections can hold.
	const most = 2*256<<10 + bufferBytes
	for name, reverse := range map[string]bool{"a client that does not read": false, "a leader that does not read": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				e := r.connect("10.0.0.1")
				writer := e.leader
				if reverse {
					writer = e.client
				}
				written := make(chan int, 1)
				go func() {
					n, _ := writer.Write(make([]byte, much))
					written <- n
				}()
				time.Sleep(writeTimeout - time.Second)
				select {
				case <-e.done:
					t.Error("the tunnel ended early")
				default:
				}
				if !reverse {
					time.Sleep(2 * time.Second)
					e.isOver(t)
				}
				_, _ = e.client.Close(), e.leader.Close()
				if n := <-written; n > most || n < bufferBytes {
					t.Errorf("%d bytes were taken, want %d at most", n, most)
				}
			})
		})
	}
}

// TestBoundaryFollowsAnyPieces verifies that boundary finds the ends of frames however the stream is split.
func TestBoundaryFollowsAnyPieces(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var stream []byte
		ends := map[int]bool{0: true}
		for range 20 {
			stream = append(stream, frame(t, random.IntN(300))...)
			ends[len(stream)] = true
		}
		var at boundary
		for passed := 0; passed < len(stream); {
			n := min(1+random.IntN(200), len(stream)-passed)
			if next := at.next(); random.IntN(2) == 0 && next > 0 {
				n = min(n, next)
			}
			at.record(stream[passed : passed+n])
			if passed += n; (at.next() == 0) != ends[passed] {
				t.Fatalf("after %d bytes: %d are missing, a frame ends there: %v", passed, at.next(), ends[passed])
			}
		}
	}
}

func TestArrivedIsTheClients(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	for _, address := range []string{"10.1.2.3:4567", "[2001:db8::1]:80", "shop:40001"} {
		if got := Arrive(near, &wire.Caller{Address: address}).RemoteAddr(); got.String() != address || got.Network() != "tcp" {
			t.Errorf("a client at %s has address %v", address, got)
		}
	}
	if _, ip := Arrive(near, &wire.Caller{Address: "10.1.2.3:4567"}).RemoteAddr().(*net.TCPAddr); !ip {
		t.Error("the source of an IP address is not known")
	}
	failing := halfCloser{near}
	if err := Arrive(failing, &wire.Caller{Address: "a:1"}).CloseWrite(); !errors.Is(err, errNoWay) {
		t.Errorf("the connection's own error is lost: %v", err)
	}
	if err := Arrive(near, &wire.Caller{Address: "a:1"}).CloseWrite(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("half a pipe was closed: %v", err)
	}
}

// halfCloser fails to close its sending side.
type halfCloser struct{ net.Conn }

func (halfCloser) CloseWrite() error { return errNoWay }
