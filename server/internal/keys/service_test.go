package keys

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// forwarded returns how many requests the node has sent on with that result.
func (n *node) forwarded(result string) float64 {
	var m dto.Metric
	if err := n.service.metrics.forwarded.WithLabelValues(result).Write(&m); err != nil {
		n.c.t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// TestEntries changes keys through the leader and through a follower.
func TestEntries(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		for _, id := range []string{"n1", "n2"} {
			var seen *wire.ChangeKeys
			c.nodes["n1"].propose = func(cmd *wire.Command, _ func(*wire.Result)) bool {
				seen = cmd.GetChangeKeys()
				return false
			}
			res, err := c.nodes[id].change("k" + id)
			if err != nil || res.GetStatus() != wire.Status_GRANTED || c.count("k"+id) != 1 || c.callers["k"+id] != "ann" {
				t.Errorf("through %s: %v, %v, executed %v for %v", id, res, err, c.executed, c.callers)
			}
			if seen.GetNodeId() != id || seen.GetBoot() != 7 || seen.GetSeq() != 1 || seen.GetAckedBelow() != 1 || nodeOf(seen.GetClient()) != id {
				t.Errorf("through %s: proposed %v", id, seen)
			}
			if leader, here := c.nodes[id].service.Leader(); leader != "n1" || here != (id == "n1") {
				t.Errorf("%s knows the leader %q, here %v", id, leader, here)
			}
		}
		if n := c.nodes["n1"].linksOpened() + c.nodes["n3"].linksOpened(); n != 0 {
			t.Errorf("nodes that need no link opened %d", n)
		}
	})
}

// TestManyInFlight verifies that requests share one link, and that one which gets no answer delays no other.
func TestManyInFlight(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		var answer func(*wire.Result)
		c.nodes["n1"].propose = func(cmd *wire.Command, done func(*wire.Result)) bool {
			slow := cmd.GetChangeKeys().GetNames()[0] == "slow"
			if slow {
				answer = done
			}
			return slow
		}
		var all sync.WaitGroup
		var slow *wire.Result
		all.Go(func() { slow, _ = c.nodes["n2"].change("slow") })
		synctest.Wait()
		var fast sync.WaitGroup
		for i := range 200 {
			fast.Go(func() {
				if res, err := c.nodes["n2"].change(fmt.Sprint(i)); err != nil || res.GetStatus() != wire.Status_GRANTED {
					t.Errorf("%v, %v", res, err)
				}
			})
		}
		fast.Wait()
		answer(&wire.Result{Status: wire.Status_NOT_ACQUIRED})
		all.Wait()
		if slow.GetStatus() != wire.Status_NOT_ACQUIRED || c.nodes["n2"].linksOpened() != 1 {
			t.Errorf("the slow one got %v, %d links", slow, c.nodes["n2"].linksOpened())
		}
		if n := len(c.senders); n != 201 {
			t.Errorf("%d connections are told apart, want 201", n)
		}
		if n := c.nodes["n2"].forwarded("answered"); n != 201 {
			t.Errorf("%v were answered", n)
		}
	})
}

// TestLeaderDiesWithRequestsInFlight verifies that each request is executed once, whether or not the leader that died
// had executed it.
func TestLeaderDiesWithRequestsInFlight(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		var taken atomic.Int64
		c.nodes["n1"].propose = func(cmd *wire.Command, _ func(*wire.Result)) bool {
			if taken.Add(1)%2 == 0 {
				c.apply(cmd)
			}
			return true // it answers nothing
		}
		var all sync.WaitGroup
		const requests = 300
		for i := range requests {
			all.Go(func() {
				if res, err := c.nodes["n2"].change(fmt.Sprint(i)); err != nil || res.GetStatus() != wire.Status_GRANTED {
					t.Errorf("%v, %v", res, err)
				}
			})
		}
		synctest.Wait()
		if taken.Load() != requests {
			t.Fatalf("%d requests have reached the leader", taken.Load())
		}
		c.elect("")
		c.nodes["n1"].die()
		<-time.After(time.Second)
		c.elect("n3")
		all.Wait()
		for i := range requests {
			if n := c.count(fmt.Sprint(i)); n != 1 {
				t.Errorf("request %d was executed %d times", i, n)
			}
		}
	})
}

// TestLeadershipMoves verifies that requests follow the leader from this node to another one and back.
func TestLeadershipMoves(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		n2 := c.nodes["n2"]
		var all sync.WaitGroup
		c.nodes["n1"].propose = func(cmd *wire.Command, _ func(*wire.Result)) bool { return true }
		n2.propose = c.nodes["n1"].propose
		all.Go(func() {
			if res, err := n2.change("k"); err != nil || res.GetStatus() != wire.Status_GRANTED {
				t.Errorf("%v, %v", res, err)
			}
		})
		for _, leader := range []string{"n2", "n1", "n2", "n3"} {
			<-time.After(time.Second)
			c.elect(leader)
		}
		all.Wait()
		if n := c.count("k"); n != 1 {
			t.Errorf("executed %d times", n)
		}
	})
}

// TestNoLeader verifies how long requests wait for a leader, and what they get then.
func TestNoLeader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		begin := time.Now()
		ends := func(what string, err, want error, after time.Duration) {
			t.Helper()
			if took := time.Since(begin); !errors.Is(err, want) || took < after || took > after+100*time.Millisecond {
				t.Errorf("%s: %v after %v, want %v after %v", what, err, took, want, after)
			}
			begin = time.Now()
		}
		c.elect("")
		_, err := c.nodes["n2"].change("a")
		ends("without a leader", err, ErrNoLeader, 3*time.Second)
		_, err = c.nodes["n2"].service.Read(as(t.Context(), "ann"), "a")
		ends("a read", err, ErrNoLeader, 3*time.Second)
		_, err = c.nodes["n2"].service.AddTTL(as(t.Context(), "ann"), identity.Sender{}, acquireKey("a"))
		ends("an addition", err, ErrNoLeader, 3*time.Second)
		ctx, stop := context.WithTimeout(as(t.Context(), "ann"), time.Second)
		defer stop()
		_, err = c.nodes["n2"].service.Change(ctx, identity.Sender{}, acquireKey("a"))
		ends("with less time", err, context.DeadlineExceeded, time.Second)

		c.nodes["n1"].propose = func(cmd *wire.Command, done func(*wire.Result)) bool {
			c.elect("")
			done(&wire.Result{Status: wire.Status_UNCERTAIN})
			return true
		}
		c.elect("n1")
		_, err = c.nodes["n1"].change("a")
		ends("with an unknown outcome", err, ErrUnknown, 3*time.Second)
		c.elect("n1")
		ctx, stop = context.WithTimeout(as(t.Context(), "ann"), time.Second)
		defer stop()
		_, err = c.nodes["n1"].service.Change(ctx, identity.Sender{}, acquireKey("a"))
		ends("with an unknown outcome and less time", err, context.DeadlineExceeded, time.Second)
		if c.count("a") != 0 {
			t.Error("executed")
		}
	})
}

// TestCallersThatLeave verifies that a request ends with its caller although the leader has not answered, and that its
// number is then acknowledged.
func TestCallersThatLeave(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		c.nodes["n1"].propose = func(*wire.Command, func(*wire.Result)) bool { return true }
		for _, id := range []string{"n1", "n2"} {
			ctx, leave := context.WithCancel(as(t.Context(), "ann"))
			time.AfterFunc(time.Second, leave)
			s := c.nodes[id].service
			if res, err := s.Change(ctx, identity.Sender{}, acquireKey("a")); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, %v", id, res, err)
			}
			if n, low := s.requests.Load(), s.window.lowest(); n != 0 || low != 2 {
				t.Errorf("%s: %d in flight, the lowest %d", id, n, low)
			}
		}
	})
}

// TestLeaderThatNeverServes verifies that requests do not wait for ever if a node is taken for the leader that is not.
func TestLeaderThatNeverServes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		c.nodes["n1"].propose = func(cmd *wire.Command, done func(*wire.Result)) bool {
			done(&wire.Result{Status: wire.Status_NOT_LEADER})
			return true
		}
		begin := time.Now()
		_, err := c.nodes["n2"].change("a")
		if took := time.Since(begin); !errors.Is(err, ErrNoLeader) || took < 3*time.Second || took > 4*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		if n := c.nodes["n2"].linksOpened(); n < 100 || n > 160 {
			t.Errorf("%d links in 3 s", n)
		}
	})
}

// TestRefusals verifies that a leader's refusal is an answer, unless an earlier attempt may have been executed.
func TestRefusals(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		for _, status := range []wire.Status_Code{wire.Status_UNAVAILABLE, wire.Status_RESOURCE_EXHAUSTED, wire.Status_PERMISSION_DENIED} {
			for _, id := range []string{"n1", "n2"} {
				n := 0
				c.nodes["n1"].propose = func(cmd *wire.Command, done func(*wire.Result)) bool {
					n++
					done(&wire.Result{Status: status})
					return true
				}
				if res, err := c.nodes[id].change("a"); err != nil || res.GetStatus() != status || n != 1 {
					t.Errorf("%v through %s: %v, %v, after %d attempts", status, id, res, err, n)
				}
				if status == wire.Status_PERMISSION_DENIED {
					continue
				}
				n = 0
				c.nodes["n1"].propose = func(cmd *wire.Command, done func(*wire.Result)) bool {
					n++
					switch n {
					case 1:
						c.apply(cmd)
						done(&wire.Result{Status: wire.Status_UNCERTAIN})
					case 2:
						done(&wire.Result{Status: status})
					default:
						return false
					}
					return true
				}
				if res, err := c.nodes[id].change(fmt.Sprint(status, id)); err != nil || res.GetStatus() != wire.Status_GRANTED || n != 3 {
					t.Errorf("%v through %s of an executed request: %v, %v, after %d attempts", status, id, res, err, n)
				}
			}
		}
	})
}

// TestStoppingLeader verifies that the refusal of a node that stops leading is no answer.
func TestStoppingLeader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		c.nodes["n1"].propose = func(cmd *wire.Command, done func(*wire.Result)) bool {
			c.elect("n3")
			done(&wire.Result{Status: wire.Status_UNAVAILABLE, Message: "this node is stopping"})
			return true
		}
		if res, err := c.nodes["n1"].change("a"); err != nil || res.GetStatus() != wire.Status_GRANTED {
			t.Errorf("%v, %v", res, err)
		}
	})
}

// TestLimits verifies the bounds of requests in flight and of their memory.
func TestLimits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, func(cfg *Config) { cfg.MaxInFlight = 10 })
		var held []func()
		c.nodes["n1"].propose = func(cmd *wire.Command, done func(*wire.Result)) bool {
			held = append(held, func() { done(c.apply(cmd)) })
			return true
		}
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				if res, err := c.nodes["n2"].change(fmt.Sprint(i)); err != nil || res.GetStatus() != wire.Status_GRANTED {
					t.Errorf("%v, %v", res, err)
				}
			})
		}
		synctest.Wait()
		res, err := c.nodes["n2"].change("one more")
		if err != nil || res.GetStatus() != wire.Status_RESOURCE_EXHAUSTED || !strings.Contains(res.GetMessage(), "10 requests") {
			t.Errorf("%v, %v", res, err)
		}
		_, err = c.nodes["n2"].service.Read(as(t.Context(), "ann"), "a")
		if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Result.GetStatus() != wire.Status_RESOURCE_EXHAUSTED {
			t.Errorf("a read: %v", err)
		}
		for _, answer := range held {
			answer()
		}
		all.Wait()
	})
}

// TestMemory verifies that the requests on a link count towards the node's buffers at both ends, and only while they are
// in flight.
func TestMemory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		buffers := map[string]*budget.Budget{}
		c := newCluster(t, func(cfg *Config) {
			buffers[cfg.NodeID] = budget.New(400 << 10)
			cfg.Buffers = buffers[cfg.NodeID]
		})
		var answer func()
		c.nodes["n1"].propose = func(cmd *wire.Command, done func(*wire.Result)) bool {
			answer = func() { done(c.apply(cmd)) }
			return true
		}
		large := acquireKey("large")
		large.Value = make([]byte, 50<<10)
		var all sync.WaitGroup
		all.Go(func() { _, _ = c.nodes["n2"].service.Change(as(t.Context(), "ann"), identity.Sender{}, large) })
		synctest.Wait()
		for _, id := range []string{"n1", "n2"} {
			if used := buffers[id].Used(); used < 80<<10 {
				t.Errorf("%s counts %d bytes", id, used)
			}
		}
		another := acquireKey("another")
		another.Value = make([]byte, 350<<10)
		res, err := c.nodes["n2"].service.Change(as(t.Context(), "ann"), identity.Sender{}, another)
		if err != nil || res.GetStatus() != wire.Status_RESOURCE_EXHAUSTED || !strings.Contains(res.GetMessage(), "max_buffer_bytes") {
			t.Errorf("%v, %v", res, err)
		}
		answer()
		all.Wait()
		synctest.Wait()
		c.nodes["n1"].die()
		synctest.Wait()
		for id, b := range buffers {
			if used := b.Used(); used != 0 {
				t.Errorf("%s counts %d bytes after the link has ended", id, used)
			}
		}
	})
}

// TestLeaderThatHangs verifies that neither opening a link to a leader that does not answer, nor an open one, delays
// requests once there is another leader.
func TestLeaderThatHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		n2 := c.nodes["n2"]
		n2.open = func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			n2.open = nil
			return nil, ctx.Err()
		}
		elected := time.Now().Add(100 * time.Millisecond)
		time.AfterFunc(100*time.Millisecond, func() { c.elect("n3") })
		res, err := n2.change("a")
		if late := time.Since(elected); err != nil || res.GetStatus() != wire.Status_GRANTED || late > 50*time.Millisecond {
			t.Errorf("%v, %v, %v after the election", res, err, late)
		}
		c.nodes["n3"].propose = func(*wire.Command, func(*wire.Result)) bool { return true }
		elected = time.Now().Add(time.Minute)
		time.AfterFunc(time.Minute, func() { c.elect("n1") })
		res, err = n2.change("b")
		if late := time.Since(elected); err != nil || res.GetStatus() != wire.Status_GRANTED || late > 50*time.Millisecond {
			t.Errorf("%v, %v, %v after the election", res, err, late)
		}
	})
}

// TestVoters verifies that callers share the number of voters for a short time.
func TestVoters(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		for i, step := range []struct {
			after time.Duration
			id    string
			want  int
		}{{0, "n1", 2}, {0, "n2", 2}, {countInterval + 1, "n2", 3}} {
			<-time.After(step.after)
			if n, err := c.nodes[step.id].service.Voters(as(t.Context(), "ann")); err != nil || n != step.want {
				t.Errorf("step %d: %d, %v", i, n, err)
			}
		}
	})
}

// TestReads verifies that each read has a proof of leadership of its own call.
func TestReads(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		for i, id := range []string{"n1", "n2"} {
			keys, err := c.nodes[id].service.Read(as(t.Context(), "ann"), "a", "b")
			if err != nil || len(keys) != 2 || keys[0].GetExists() || c.nodes["n1"].proofs != i+1 {
				t.Errorf("through %s: %v, %v, %d proofs", id, keys, err, c.nodes["n1"].proofs)
			}
		}
	})
}

// TestCloseEndsRequests verifies that requests in flight do not outlive the service.
func TestCloseEndsRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		c.nodes["n1"].propose = func(*wire.Command, func(*wire.Result)) bool { return true }
		ended := make(chan error, 2)
		for _, id := range []string{"n1", "n2"} {
			go func() {
				_, err := c.nodes[id].change("a")
				ended <- err
			}()
		}
		synctest.Wait()
		for _, id := range []string{"n1", "n2"} {
			c.nodes[id].service.Close()
			if err := <-ended; !errors.Is(err, ErrUnknown) {
				t.Errorf("%s: %v", id, err)
			}
		}
	})
}
