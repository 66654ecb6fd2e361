package hostile

import (
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client/admin"
	"github.com/quorumlock/quorumlock/test/hostile/attacker"
)

// excesses are the attacks of one identity that only does in excess what its rights allow. They are directed at a
// cluster whose nodes have few places for connections, so that an attack asks for more than all of them.
var excesses = []scenario{
	{plan: attacker.Plan{Attack: "sessions", Connections: 20, Rate: 5_000}, length: 20 * time.Second, proof: answered(1_000)},
	{plan: attacker.Plan{Attack: "names", Connections: 28, Rate: 4_000}, length: 20 * time.Second, proof: answered(500)},
	{plan: attacker.Plan{Attack: "values", Connections: 20, Rate: 20_000}, length: 20 * time.Second, proof: sentBytes(2 << 20)},
	{plan: attacker.Plan{Attack: "watches", Connections: 200, Rate: 5_000}, length: 20 * time.Second, proof: openAtOnce(150)},
	{plan: attacker.Plan{Attack: "connections", Connections: 1_500, Rate: 500}, length: 20 * time.Second, proof: openAtOnce(400)},
	{plan: attacker.Plan{Attack: "flood-try", Connections: 16, Rate: 20_000}, length: 20 * time.Second, proof: answered(2_000)},
	{plan: attacker.Plan{Attack: "flood-list", Connections: 16, Rate: 2_000}, length: 20 * time.Second, proof: answered(50)},
	{plan: attacker.Plan{Attack: "flood-status", Connections: 16, Rate: 10_000}, length: 20 * time.Second, proof: answered(200)},
	{plan: attacker.Plan{Attack: "redis-new", Connections: 28, Rate: 4_000}, length: 20 * time.Second, proof: answered(200)},
	{plan: attacker.Plan{Attack: "redis-poll", Connections: 64, Rate: 20_000}, length: 20 * time.Second, proof: answered(1_000)},
	{plan: attacker.Plan{Attack: "redis-scripts", Connections: 16, Rate: 5_000}, length: 20 * time.Second, proof: answered(50)},
	{plan: attacker.Plan{Attack: "redis-reads", Connections: 64, Rate: 20_000}, length: 20 * time.Second, proof: answered(500)},
	{plan: attacker.Plan{Attack: "redis-connections", Connections: 1_500, Rate: 500}, length: 20 * time.Second, proof: openAtOnce(300)},
}

// everything is all excesses at once. They need more than the processors of one machine, so the attacker has a quota.
var everything = scenario{
	plan:   attacker.Plan{Attack: "everything", Connections: 100, Rate: 10_000},
	length: 20 * time.Second, short: 2 * time.Second, proof: answered(200),
}

// everythingOnRedis is the same on the Redis port.
var everythingOnRedis = scenario{
	plan:   attacker.Plan{Attack: "redis-everything", Connections: 40, Rate: 10_000},
	length: 20 * time.Second, short: 2 * time.Second, proof: answered(200),
}

// quotaOfOneTeam allows much more than the regular use of a team of a few hundred programs.
var quotaOfOneTeam = admin.Quota{
	Identity: attackingIdentity, Sessions: 1_000, Claims: 10_000, Bytes: 32 << 20, Watches: 200, Connections: 200, RequestsPerSecond: 1_000,
}

// TestExcess measures what one identity in excess of everything costs another: with "make flood", at most the larger of
// a doubled p99 and 50 ms more, and no lost session, failed call or refused connection.
func TestExcess(t *testing.T) {
	rows, b := []string{tableHead}, bound()
	b.near = full
	site := startSite(t, withPolicy, "--max-connections", "800", "--http-max-connections", "400")
	if full {
		for _, s := range excesses {
			t.Run(s.plan.Attack, func(t *testing.T) { rows = append(rows, site.attack(t, s, b)) })
		}
	}
	site.setPolicy(quotaOfOneTeam)
	for _, s := range []scenario{everything, everythingOnRedis} {
		t.Run(s.plan.Attack, func(t *testing.T) { rows = append(rows, site.attack(t, s, b)) })
	}
	t.Log("\n" + strings.Join(rows, "\n"))
}
