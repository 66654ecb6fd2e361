package redis_test

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/test/redis/system"
)

// benchmarkRow runs redis-benchmark, which stops at the first error, with acquires of many locks, and of one that is
// held. It returns its row of the table.
func benchmarkRow(t *testing.T, entry system.Entry) string {
	t.Helper()
	if !full {
		return ""
	}
	host, port, err := net.SplitHostPort(entry.Addr)
	if err != nil {
		t.Fatal(err)
	}
	base := []string{"-h", host, "-p", port, "-n", "2000", "-c", "16", "-r", "1000000", "--csv"}
	result := map[string]string{}
	for scenario, key := range map[string]string{"acquire": "benchmark:__rand_int__", "contend": "benchmark:held"} {
		args := append(append([]string(nil), base...), "SET", key, "value", "NX", "PX", "20000")
		out, err := exec.CommandContext(t.Context(), "redis-benchmark", args...).CombinedOutput()
		result[scenario] = "pass"
		if err != nil || strings.Contains(string(out), "Error") || !strings.Contains(string(out), `"SET `) {
			t.Errorf("redis-benchmark %v: %v\n%s", args, err, out)
			result[scenario] = "fail"
		}
	}
	version, err := exec.CommandContext(t.Context(), "redis-benchmark", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	row := fmt.Sprintf("| redis-benchmark | %s | shell |", strings.Fields(string(version))[1])
	for _, name := range columns() {
		cell, ran := result[name]
		if !ran {
			cell = "–"
		}
		row += " " + cell + " |"
	}
	return row + "\n"
}
