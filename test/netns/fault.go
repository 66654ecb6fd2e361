package netns

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Fault affects packets until it is healed. It is an nftables table, with a counter, on every host concerned.
type Fault struct {
	net   *Net
	table string
	hosts []string
}

// hit counts the packets that match the rest of the rule.
const hit = `counter name "hits" `

// Cut drops every packet from one group of hosts to another. The opposite direction stays open: cut it too
// for a bidirectional partition.
func (n *Net) Cut(from, to []string) (*Fault, error) {
	var addrs []string
	for _, host := range from {
		addrs = append(addrs, n.Addr(host))
	}
	return n.rule(fmt.Sprintf("ip saddr { %s } %s drop", strings.Join(addrs, ", "), hit), to)
}

// Part drops packets in both directions between two groups of hosts.
func (n *Net) Part(some, others []string) (Faults, error) {
	there, err := n.Cut(some, others)
	if err != nil {
		return nil, err
	}
	back, err := n.Cut(others, some)
	return Faults{there, back}, err
}

// Lose drops a random percentage of the packets that arrive at the hosts.
func (n *Net) Lose(percent int, hosts ...string) (*Fault, error) {
	return n.rule(fmt.Sprintf("iifname %q numgen random mod 100 < %d %s drop", cable, percent, hit), hosts)
}

// Reject refuses new connections to ports of the hosts, as a firewall does. Open connections continue.
func (n *Net) Reject(ports []int, hosts ...string) (*Fault, error) {
	return n.rule(fmt.Sprintf("iifname %q tcp dport { %s } tcp flags & (fin|syn|rst|ack) == syn %s reject with tcp reset",
		cable, numbers(ports), hit), hosts)
}

// Reset answers every packet to ports of the hosts with a reset: open connections fail at the other end, new
// ones are refused.
func (n *Net) Reset(ports []int, hosts ...string) (*Fault, error) {
	return n.rule(fmt.Sprintf("iifname %q tcp dport { %s } %s reject with tcp reset", cable, numbers(ports), hit), hosts)
}

func numbers(ports []int) string {
	var all []string
	for _, p := range ports {
		all = append(all, strconv.Itoa(p))
	}
	return strings.Join(all, ", ")
}

// rule activates a rule for packets that arrive at the hosts.
func (n *Net) rule(rule string, hosts []string) (*Fault, error) {
	f := &Fault{net: n, table: fmt.Sprintf("fault%d", n.faults.Add(1))}
	text := fmt.Sprintf("table inet %s {\n counter hits { }\n chain in {\n type filter hook input priority 0; policy accept;\n %s\n }\n}\n", f.table, rule)
	for _, host := range hosts {
		if err := f.nft(host, text); err != nil {
			return f, errors.Join(err, f.Heal())
		}
		f.hosts = append(f.hosts, host)
	}
	return f, nil
}

func (f *Fault) nft(host, text string) error {
	_, at := f.net.find(host)
	_, err := run(at, text, "nft", "-f", "-")
	return err
}

var packets = regexp.MustCompile(`packets (\d+)`)

// Packets returns the number of packets affected so far.
func (f *Fault) Packets() (sum uint64, err error) {
	for _, host := range f.hosts {
		_, at := f.net.find(host)
		out, err := run(at, "", "nft", "list", "counters", "table", "inet", f.table)
		if err != nil {
			return 0, err
		}
		found := packets.FindStringSubmatch(out)
		if found == nil {
			return 0, fmt.Errorf("nft says nothing of packets: %q", out)
		}
		count, err := strconv.ParseUint(found[1], 10, 64)
		if err != nil {
			return 0, err
		}
		sum += count
	}
	return sum, nil
}

// Heal ends the fault. It may be called repeatedly.
func (f *Fault) Heal() error {
	var all []error
	for _, host := range f.hosts {
		all = append(all, f.nft(host, "delete table inet "+f.table+"\n"))
	}
	f.hosts = nil
	return errors.Join(all...)
}

// Faults are several faults that start and end together.
type Faults []*Fault

// Packets returns the sum over all of them.
func (f Faults) Packets() (sum uint64, err error) {
	for _, one := range f {
		count, err := one.Packets()
		if err != nil {
			return 0, err
		}
		sum += count
	}
	return sum, nil
}

// Heal ends all of them.
func (f Faults) Heal() error {
	var all []error
	for _, one := range f {
		if one != nil {
			all = append(all, one.Heal())
		}
	}
	return errors.Join(all...)
}
