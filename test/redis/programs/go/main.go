package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// stepTimeout bounds one step. It is longer than what a cluster needs to elect a leader.
const stepTimeout = 10 * time.Second

// library is a lock library.
type library interface {
	// acquire tries once, and returns nil if the lock is held.
	acquire(ctx context.Context, key string, ttl time.Duration) (lock, error)
}

// lock is a lock that was acquired. The methods report whether it was held.
type lock interface {
	held(context.Context) (bool, error)
	extend(context.Context, time.Duration) (bool, error)
	release(context.Context) (bool, error)
}

// libraries are the constructors of the libraries, with the modules that have their versions.
var libraries = map[string]struct {
	module string
	open   func(*redis.Client) library
}{
	"go-redis":  {"github.com/redis/go-redis/v9", openScripts},
	"redsync":   {"github.com/go-redsync/redsync/v4", openRedsync},
	"redislock": {"github.com/bsm/redislock", openRedislock},
}

// outcome is what a step prints.
type outcome struct {
	Version string `json:"version,omitempty"`
	OK      *bool  `json:"ok,omitempty"`
	TTL     *int64 `json:"ttl,omitempty"` // milliseconds
	Token   uint64 `json:"token,omitempty"`
	Missing bool   `json:"missing,omitempty"`
	Error   string `json:"error,omitempty"`
}

// driver executes steps. Its locks are by key.
type driver struct {
	conn   *redis.Client
	client library
	locks  map[string]lock
}

func main() {
	chosen := libraries[os.Args[1]]
	conn := redis.NewClient(&redis.Options{Addr: os.Args[2]})
	d := driver{conn, chosen.open(conn), map[string]lock{}}
	out := json.NewEncoder(os.Stdout)
	print := func(o outcome) {
		if err := out.Encode(o); err != nil {
			log.Fatal(err)
		}
	}
	print(outcome{Version: version(chosen.module)})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		o, err := d.execute(strings.Fields(lines.Text()))
		if err != nil {
			o.Error = err.Error()
		}
		print(o)
	}
}

// version returns the version of a module in this program.
func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == module {
			return strings.TrimPrefix(dep.Version, "v")
		}
	}
	return "unknown"
}

func (d driver) execute(step []string) (o outcome, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	var ok bool
	switch step[0] {
	case "acquire":
		ok, err = d.acquire(ctx, step[1], milliseconds(step[2]))
	case "held":
		ok, err = d.locks[step[1]].held(ctx)
	case "extend":
		ok, err = d.locks[step[1]].extend(ctx, milliseconds(step[2]))
	case "release":
		ok, err = d.locks[step[1]].release(ctx)
	case "ttl":
		left, err := d.conn.PTTL(ctx, step[1]).Result()
		ttl := left.Milliseconds()
		return outcome{TTL: &ttl}, err
	case "token":
		return d.token(ctx, step[1])
	default:
		return outcome{}, fmt.Errorf("unknown step %q", step[0])
	}
	return outcome{OK: &ok}, err
}

func (d driver) acquire(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	l, err := d.client.acquire(ctx, key, ttl)
	if l == nil || err != nil {
		return false, err
	}
	d.locks[key] = l
	return true, nil
}

// token asks for the fencing token of a lock. Redis has no such command, and no such tokens.
func (d driver) token(ctx context.Context, key string) (outcome, error) {
	held, ok := d.locks[key].(*scriptLock)
	if !ok {
		return outcome{Missing: true}, nil
	}
	token, err := d.conn.Do(ctx, "QL.TOKEN", key, held.value).Uint64()
	if err != nil && strings.Contains(err.Error(), "unknown command") {
		return outcome{Missing: true}, nil
	}
	return outcome{Token: token}, err
}

func milliseconds(text string) time.Duration {
	n, err := strconv.Atoi(text)
	if err != nil {
		log.Fatal(err)
	}
	return time.Duration(n) * time.Millisecond
}
