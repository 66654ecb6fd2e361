package attacker

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/quorumlock/quorumlock/test/resp"
)

const (
	// redisBatch is the number of commands in flight of a connection to the Redis port.
	redisBatch = 32
	// largeArgument is the size of the largest arguments, in bytes: a little less than a command may have.
	largeArgument = 1<<20 - 200
)

// redisConn opens a connection to the leader's Redis port. buffer is as in dial.
func (a *attack) redisConn(ctx context.Context, buffer int) (*net.TCPConn, *resp.Conn, error) {
	conn, err := a.dial(ctx, "redis", a.leader().Redis, buffer)
	if err != nil {
		return nil, nil, err
	}
	if a.tls == nil {
		return conn, resp.New(conn), nil
	}
	config := a.tls.Clone()
	config.ServerName, _, _ = net.SplitHostPort(a.leader().Redis)
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		a.drop(conn)
		return nil, nil, err
	}
	return conn, resp.New(secured), nil
}

// onRedis runs life with connections to the Redis port until ctx ends.
func (a *attack) onRedis(ctx context.Context, buffer int, life func(ctx context.Context, c *resp.Conn, i int) error) {
	a.each(ctx, a.plan.Connections, func(ctx context.Context, i int) error {
		a.pace.wait(ctx)
		tcp, c, err := a.redisConn(ctx, buffer)
		if err != nil {
			a.refused.Add(1)
			return err
		}
		defer a.drop(tcp)
		defer context.AfterFunc(ctx, func() { _ = tcp.Close() })()
		return life(ctx, c, i)
	})
}

// pipelined keeps sending what next returns for a connection and a number, in pipelines.
func (a *attack) pipelined(ctx context.Context, next func(i, n int) []string) error {
	a.ready.Store(true)
	a.onRedis(ctx, 0, func(ctx context.Context, c *resp.Conn, i int) error {
		for n := 0; ctx.Err() == nil; n += redisBatch {
			var batch []byte
			for k := range redisBatch {
				a.pace.wait(ctx)
				batch = append(batch, resp.Encode(next(i, n+k)...)...)
			}
			sent, err := c.Write(batch)
			a.bytesSent.Add(int64(sent))
			a.sent.Add(redisBatch)
			if err != nil {
				return err
			}
			for range redisBatch {
				reply, err := c.Reply()
				if err != nil {
					return err
				}
				a.countRedis(reply)
			}
		}
		return nil
	})
	return nil
}

func (a *attack) countRedis(reply string) {
	a.answered.Add(1)
	a.bytesRead.Add(int64(len(reply)))
	switch {
	case strings.HasPrefix(reply, "-"):
		a.refused.Add(1)
	case reply == "+OK\r\n":
		a.granted.Add(1)
	}
}

// redisNew acquires ever new keys. Those it holds at once fill the state, but end within the time of recovery.
func (a *attack) redisNew(ctx context.Context) error {
	return a.pipelined(ctx, func(i, n int) []string {
		return []string{"SET", fmt.Sprintf("attack/new/%d/%d", i, n), "value", "NX", "PX", "9000"}
	})
}

// redisPoll polls a key that is held nearly all the time.
func (a *attack) redisPoll(ctx context.Context) error {
	return a.pipelined(ctx, func(i, _ int) []string {
		return []string{"SET", "attack/polled", fmt.Sprint("value ", i), "NX", "PX", "10000"}
	})
}

// redisScripts sends scripts that are all different: unknown ones, known ones, and hashes that nobody knows.
func (a *attack) redisScripts(ctx context.Context) error {
	return a.pipelined(ctx, func(i, n int) []string {
		mark := fmt.Sprintf("-- %d %d\n", i, n)
		switch n % 3 {
		case 0:
			return []string{"EVAL", "local x = redis.call('get', KEYS[1]) " + strings.Repeat(`if ARGV[1]=="a" then end `, 600) + mark, "0"}
		case 1:
			return []string{"SCRIPT", "LOAD", mark + `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`}
		}
		return []string{"EVALSHA", fmt.Sprintf("%020x%020x", i, n), "1", "attack/script", "value"}
	})
}

// redisReads reads many keys at once.
func (a *attack) redisReads(ctx context.Context) error {
	keys := []string{"EXISTS"}
	for n := range 64 {
		keys = append(keys, fmt.Sprint("attack/read/", n))
	}
	return a.pipelined(ctx, func(_, n int) []string {
		if n%4 == 0 {
			return []string{"QL.WHO", "attack/polled"}
		}
		return keys
	})
}

// redisTiny sends a stream of the shortest commands.
func (a *attack) redisTiny(ctx context.Context) error {
	return a.pipelined(ctx, func(int, int) []string { return []string{"PING"} })
}

// redisUnread sends commands with large replies and reads none of them.
func (a *attack) redisUnread(ctx context.Context) error {
	a.ready.Store(true)
	large := resp.Encode("ECHO", strings.Repeat("x", largeArgument))
	docs := resp.Encode(append([]string{"COMMAND", "DOCS"}, strings.Split(strings.Repeat("set ", 1_000), " ")...)...)
	a.onRedis(ctx, 4<<10, func(ctx context.Context, c *resp.Conn, i int) error {
		for ctx.Err() == nil {
			command := large
			if i%2 == 0 {
				command = docs
			}
			n, err := c.Write(command)
			a.bytesSent.Add(int64(n))
			a.sent.Add(1)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return nil
}

// redisUnfinished sends most of a large command, and on some connections a large one to a transaction first.
func (a *attack) redisUnfinished(ctx context.Context) error {
	a.ready.Store(true)
	large := resp.Encode("ECHO", strings.Repeat("x", largeArgument))
	queue := append(resp.Encode("MULTI"), resp.Encode("DEL", strings.Repeat("x", largeArgument))...)
	a.onRedis(ctx, 0, func(_ context.Context, c *resp.Conn, i int) error {
		bytes := large[:len(large)-missing]
		if i%2 == 0 {
			bytes = append(append([]byte(nil), queue...), bytes...)
		}
		n, err := c.Write(bytes)
		a.bytesSent.Add(int64(n))
		a.sent.Add(1)
		if err != nil {
			return err
		}
		got, _ := io.Copy(io.Discard, c)
		a.bytesRead.Add(got)
		a.closed.Add(1)
		return nil
	})
	return nil
}

// redisWaits waits for one lock on all connections, watches a key and keeps a transaction open, and sends commands
// behind the wait.
func (a *attack) redisWaits(ctx context.Context) error {
	a.ready.Store(true)
	a.onRedis(ctx, 0, func(_ context.Context, c *resp.Conn, i int) error {
		var all []byte
		for _, args := range [][]string{
			{"CLIENT", "SETNAME", strings.Repeat("n", 100)}, {"WATCH", fmt.Sprint("attack/watched/", i)},
			{"MULTI"}, {"DEL", fmt.Sprint("attack/watched/", i)}, {"DISCARD"},
			{"QL.LOCK", "attack/waited", fmt.Sprint("value ", i), "PX", "60000", "WAIT", "600000"}, {"ECHO", strings.Repeat("x", 100_000)},
		} {
			all = append(all, resp.Encode(args...)...)
		}
		n, err := c.Write(all)
		a.bytesSent.Add(int64(n))
		for err == nil {
			var reply string
			if reply, err = c.Reply(); err == nil {
				a.countRedis(reply)
			}
		}
		return err
	})
	return nil
}

// redisConnections keeps connections open that have sent one command each.
func (a *attack) redisConnections(ctx context.Context) error {
	a.ready.Store(true)
	a.onRedis(ctx, 0, func(_ context.Context, c *resp.Conn, _ int) error {
		reply, err := c.Do("PING")
		if err != nil {
			return err
		}
		a.countRedis(reply)
		_, err = c.Reply()
		return err
	})
	return nil
}

// redisEverything runs all attacks on the Redis port at once.
func (a *attack) redisEverything(ctx context.Context) error {
	var all sync.WaitGroup
	for _, one := range []func(*attack, context.Context) error{
		(*attack).redisNew, (*attack).redisPoll, (*attack).redisScripts, (*attack).redisReads, (*attack).redisTiny,
		(*attack).redisUnread, (*attack).redisUnfinished, (*attack).redisWaits, (*attack).redisConnections,
	} {
		all.Go(func() {
			if err := one(a, ctx); err != nil {
				a.failed(err)
			}
		})
	}
	all.Wait()
	return nil
}
