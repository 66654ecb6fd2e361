package process

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// clockNemeses move wall clocks. No decision may depend on them.
var clockNemeses = []Nemesis{
	{Name: "jump wall clocks", needs: func(o Options) bool { return o.Walls && !o.Lean }, strike: jump},
}

// jumps are offsets of a wall clock.
var jumps = []time.Duration{-10 * 365 * 24 * time.Hour, -time.Hour, -time.Minute, time.Minute, time.Hour, 10 * 365 * 24 * time.Hour}

// jump moves the wall clocks of nodes back and forth, the leader's first, and does not restore them.
func jump(s *strike) (jumped uint64) {
	const times = 6
	id := s.Leader()
	for range times {
		off := jumps[s.random.IntN(len(jumps))]
		if err := s.node(id).setWall(off); err != nil {
			s.t.Fatal(err)
		}
		s.Await(fmt.Sprintf("%s is off by %v", id, off), WaitTimeout, func(ctx context.Context) error {
			wall, err := s.wallOf(ctx, id)
			if is := time.Until(wall); err == nil && (is-off).Abs() > 10*time.Second {
				err = fmt.Errorf("%v", is)
			}
			return err
		})
		jumped++
		s.Pass(s.between(0, time.Second))
		id = s.one(s.IDs())
	}
	return jumped
}

// wallOf returns a node's wall-clock time.
func (c *Cluster) wallOf(ctx context.Context, id string) (time.Time, error) {
	resp, err := c.get(ctx, c.HTTP(id)+"/healthz")
	if err != nil {
		return time.Time{}, err
	}
	_ = resp.Body.Close()
	return http.ParseTime(resp.Header.Get("Date"))
}

// get sends a request to a node's HTTP port, on a new connection.
func (c *Cluster) get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	dial := c.Dialer()
	transport := &http.Transport{ // leaves no connection behind
		DisableKeepAlives: true,
		TLSClientConfig:   c.operator(),
		DialContext:       func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, addr) },
	}
	return transport.RoundTrip(req)
}
