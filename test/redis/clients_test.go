package redis_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/quorumlock/quorumlock/test/redis/system"
)

// tested is a client with its programs: one at each entry of a system.
type tested struct {
	client
	programs [2]*driver
}

// pairs returns the client's two pairs of programs: each of them is the holder once. The keys are for one scenario.
func (c tested) pairs(scenario string) (all [2]pair) {
	for i := range all {
		key := fmt.Sprintf("lock:%s:%s:%d", c.name, scenario, i)
		all[i] = pair{holder: c.programs[i], contender: c.programs[1-i], key: unspaced(key)}
	}
	return all
}

// launchAll starts the programs of all chosen clients.
func launchAll(t *testing.T, s system.System) (all []tested) {
	t.Helper()
	for _, c := range chosen() {
		started := tested{client: c}
		for i, entry := range s.Entries() {
			started.programs[i] = launch(t, c, entry)
		}
		all = append(all, started)
	}
	return all
}

// results are the errors of scenarios, by client and scenario. A scenario without a result did not run.
type results struct {
	mu     sync.Mutex
	errors map[string]map[string]error
}

// add adds the result of a scenario, which fails the test unless the library only lacks the function.
func (r *results) add(t *testing.T, client, scenario string, err error) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.errors[client] == nil {
		r.errors[client] = map[string]error{}
	}
	r.errors[client][scenario] = errors.Join(r.errors[client][scenario], err)
	if err != nil && !errors.Is(err, errMissing) {
		t.Errorf("%s: %v", scenario, err)
	}
}

// TestClients verifies that each client works with three nodes as it does with Redis, and that its locks survive the
// loss of the leader.
func TestClients(t *testing.T) {
	c := system.StartCluster(t, nodePrograms, nil)
	all := launchAll(t, c)
	r := &results{errors: map[string]map[string]error{}}
	t.Run("scenarios", func(t *testing.T) { runScenarios(t, all, r) })
	withFault(t, all, r, survive, c.Fail)
	c.Recover()
	withFault(t, all, r, reconnect, c.Interrupt)
	checkTable(t, "clients", clientTable(all, r)+benchmarkRow(t, c.Entries()[0]))
}

// TestScenariosOnRedis verifies the scenarios: Redis defines what clients expect.
func TestScenariosOnRedis(t *testing.T) {
	needRedis(t)
	s := system.StartServer(t)
	all := launchAll(t, s)
	r := &results{errors: map[string]map[string]error{}}
	t.Run("scenarios", func(t *testing.T) { runScenarios(t, all, r) })
	withFault(t, all, r, reconnect, s.Interrupt)
}

// TestScenariosCanFail verifies that the loss of a lock is noticed: a Redis without persistence that restarts has lost
// all.
func TestScenariosCanFail(t *testing.T) {
	needRedis(t)
	s := system.StartServer(t)
	all := launchAll(t, s)
	acquireAll(t, all, survive)
	s.Fail()
	for _, c := range all {
		for _, p := range c.pairs(survive) {
			if err := after(p); err == nil {
				t.Errorf("%s: the loss of %s was not noticed", c.name, p.key)
			}
		}
	}
}

// needRedis installs redis-server, for tests of "make check".
func needRedis(t *testing.T) {
	t.Helper()
	if !full {
		t.Skip("make check has this, with QUORUMLOCK_CHECK=1: it needs redis-server")
	}
	if _, err := debian(nil, "redis-server")(); err != nil {
		t.Fatal(err)
	}
}

// runScenarios runs the scenarios without faults, with several clients concurrently.
func runScenarios(t *testing.T, all []tested, r *results) {
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, s := range scenarios {
				for _, p := range c.pairs(s.name) {
					r.add(t, c.name, s.name, s.run(p))
				}
			}
		})
	}
}

// withFault lets every client hold a lock while there is a fault.
func withFault(t *testing.T, all []tested, r *results, scenario string, fault func()) {
	t.Helper()
	acquireAll(t, all, scenario)
	fault()
	t.Run(scenario, func(t *testing.T) {
		for _, c := range all {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				for _, p := range c.pairs(scenario) {
					r.add(t, c.name, scenario, after(p))
				}
			})
		}
	})
}

// acquireAll acquires a lock with every program.
func acquireAll(t *testing.T, all []tested, scenario string) {
	t.Helper()
	for _, c := range all {
		for _, p := range c.pairs(scenario) {
			var s steps
			if s.want(true, p.holder, "acquire", p.key, longTTL); s.err != nil {
				t.Fatal(s.err)
			}
		}
	}
}
