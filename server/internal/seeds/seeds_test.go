package seeds_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/server/internal/seeds"
)

// zone answers queries from maps.
type zone struct {
	hosts map[string][]string
	srv   map[string][]*net.SRV
}

var errUnknown = errors.New("no such name")

func (z zone) LookupHost(_ context.Context, host string) ([]string, error) {
	if addrs, ok := z.hosts[host]; ok {
		return slices.Clone(addrs), nil
	}
	return nil, errUnknown
}

func (z zone) LookupSRV(_ context.Context, service, proto, name string) (string, []*net.SRV, error) {
	if records, ok := z.srv[name]; ok && service == "" && proto == "" {
		return name, records, nil
	}
	return "", nil, errUnknown
}

func TestResolve(t *testing.T) {
	z := zone{
		hosts: map[string][]string{"locks": {"10.0.0.2", "10.0.0.1"}, "a.example.org": {"10.0.0.1"}, "six": {"fd00::1"}},
		srv:   map[string][]*net.SRV{"_quorumlock._tcp.example.org": {{Target: "a.example.org.", Port: 7401}, {Target: "gone.example.org.", Port: 7411}}},
	}
	for seed, want := range map[string]string{
		"10.0.0.9:7401": "10.0.0.9:7401", "[fd00::2]:1": "[fd00::2]:1", "locks:7401": "10.0.0.1:7401 10.0.0.2:7401", "six:7": "[fd00::1]:7",
		"unknown:7401": "unknown:7401", "_quorumlock._tcp.example.org": "10.0.0.1:7401 gone.example.org:7411",
	} {
		got, err := seeds.Resolve(t.Context(), z, []string{seed})
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, %v; want %s", seed, got, err, want)
		}
	}
	got, err := seeds.Resolve(t.Context(), z, []string{"_gone._tcp.example.org", "a.example.org:7401", "locks:7401"})
	if want := []string{"10.0.0.1:7401", "10.0.0.2:7401"}; !errors.Is(err, errUnknown) || !strings.Contains(err.Error(), "_gone._tcp") || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestCheck(t *testing.T) {
	for seed, valid := range map[string]bool{
		"n1:7401": true, "10.0.0.1:7401": true, "[fd00::1]:7401": true, "_quorumlock._tcp.example.org": true,
		"": false, "n1": false, ":7401": false, "n1:": false, "n1:0": false, "n1:http": false, "n1:65536": false, "fd00::1": false, "_x:1:2": false,
	} {
		if err := seeds.Check(seed); (err == nil) != valid {
			t.Errorf("%q: %v", seed, err)
		}
	}
}
