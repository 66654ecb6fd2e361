package top

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/cmd/qlock/words"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// overviewInterval is the time between two reads of the overview without events.
	overviewInterval = 2 * time.Second
	// expiryNotice is how long before its expiry a node's certificate is reported, as in qlock status.
	expiryNotice = 30 * 24 * time.Hour
	// lagNotice is how many log entries a node must be behind to be reported. A few are normal, because followers
	// learn of commits later.
	lagNotice = 100
)

// overview is the state of the whole cluster.
type overview struct {
	read       read
	status     *wire.StatusResponse // nil until the first answer
	leaderless bool                 // the status is that of a node without a leader
	leader     string               // the last one known
	samples    Samples
}

// loadOverview asks the leader or, if none answers, any node.
func (m *Model) loadOverview(ctx context.Context, source Source) (func(), error) {
	asked, cancel := context.WithTimeout(ctx, m.timeout/2)
	defer cancel()
	status, err := source.Status(asked, false)
	leaderless := err != nil
	if errors.Is(err, client.ErrPermissionDenied) || errors.Is(err, client.ErrUnauthenticated) {
		return nil, err
	}
	if leaderless {
		var staleErr error
		if status, staleErr = source.Status(ctx, true); staleErr != nil {
			return nil, err
		}
	}
	samples, sampleErr := source.Samples(ctx)
	return func() { m.keepOverview(status, leaderless, samples, sampleErr) }, nil
}

func (m *Model) keepOverview(status *wire.StatusResponse, leaderless bool, samples Samples, sampleErr error) {
	o := &m.overview
	if leader := status.GetLeaderId(); leader != "" && !leaderless {
		if o.leader != "" && o.leader != leader {
			m.say("%s leads now, after %s; term %d", words.Printable(leader), words.Printable(o.leader), status.GetTerm())
		}
		o.leader = leader
	}
	o.status, o.leaderless = status, leaderless
	if sampleErr == nil {
		o.samples = samples
	}
}

// overviewLines are the lines above the page.
func (m *Model) overviewLines() frame {
	o, now := &m.overview, m.now()
	if o.status == nil {
		return frame{{{"qlock top", bold}, {"  " + clock(now), ""}}, {{"connecting", ""}}, nil, nil, nil}
	}
	s := o.status
	leader := "leader " + words.Printable(s.GetLeaderId())
	if o.leaderless || s.GetLeaderId() == "" {
		leader = "no leader"
	}
	sentence, level := health(s, o.leaderless, now)
	if o.read.err != nil {
		sentence, level = "NO NODE ANSWERS.", urgent
	}
	f := frame{
		{{"qlock top", bold}, {fmt.Sprintf("  %s  cluster %s, %s, term %d", clock(now), words.Dash(words.Printable(s.GetClusterId())), leader, s.GetTerm()), ""}},
		{{sentence, level}},
		nodes(s),
		{{strings.Join([]string{counted(s.GetLocks(), "lock"), counted(s.GetSessions(), "session"), counted(s.GetHolds(), "hold"), counted(s.GetWaiters(), "waiter")}, "  ") + latencies(s), ""}},
		{{"grants " + o.samples.sparkline(m.width-20) + "  " + o.samples.rate(), ""}},
	}
	if o.read.stale(now) {
		f[0] = append(f[0], part{"  as of " + clock(o.read.answered), warning})
		for _, l := range f[2:] {
			for i := range l {
				l[i].style = faint
			}
		}
	}
	return f
}

// health says in one sentence how the cluster is, the worst first.
func health(s *wire.StatusResponse, leaderless bool, now time.Time) (string, style) {
	voters, up, down := reach(s)
	switch alarms := alarms(s); {
	case leaderless || s.GetLeaderId() == "":
		return fmt.Sprintf("NO LEADER: no lock is granted or released; node %s shows what it last knew.", words.Dash(words.Printable(s.GetNodeId()))), urgent
	case s.GetGrantsSuspended():
		return "GRANTS ARE SUSPENDED: bring the other voters up, or replace the node that is wrong.", urgent
	case s.GetDifferingIndex() > s.GetAgreedIndex():
		return fmt.Sprintf("THE NODES DIFFER in their state after log entry %d.", s.GetDifferingIndex()), urgent
	case voters > 2 && up <= voters/2+1:
		return fmt.Sprintf("AT RISK: %d of %d voters are up; if one more fails, no lock can be granted.", up, voters), urgent
	case len(alarms) > 0:
		return fmt.Sprintf("%s: %s; see qlock status.", counted(uint64(len(alarms)), "alarm"), alarms[0]), urgent
	case len(down) > 0:
		return fmt.Sprintf("The cluster serves, but %s cannot be reached.", strings.Join(down, ", ")), warning
	case expiring(s, now) != "":
		return fmt.Sprintf("The certificate of %s expires soon; see qlock status.", expiring(s, now)), warning
	case s.GetBackupSchedule().GetOverdue():
		return "A backup is overdue; see qlock status.", warning
	case voters == 1:
		return "All is well: the only voter is up.", good
	}
	return fmt.Sprintf("All is well: %d of %d voters are up.", up, voters), good
}

// reach counts the voters and those of them that are up, and names the nodes that are down.
func reach(s *wire.StatusResponse) (voters, up int, down []string) {
	for _, n := range s.GetNodes() {
		if n.GetVoter() {
			voters++
			if n.GetReachable() {
				up++
			}
		}
		if !n.GetReachable() {
			down = append(down, words.Printable(n.GetId()))
		}
	}
	return voters, up, down
}

// alarms describes the alarms of all nodes.
func alarms(s *wire.StatusResponse) []string {
	var all []string
	for _, n := range s.GetNodes() {
		for _, a := range n.GetAlarms() {
			all = append(all, words.Printable(n.GetId())+": "+words.Printable(a.GetMessage()))
		}
	}
	return all
}

// expiring names a node whose certificate expires soon.
func expiring(s *wire.StatusResponse, now time.Time) string {
	for _, n := range s.GetNodes() {
		if at := n.GetCertificateExpiresUnixMs(); at != 0 && time.UnixMilli(at).Sub(now) < expiryNotice {
			return words.Printable(n.GetId())
		}
	}
	return ""
}

// nodes shows each node with its role and how many log entries it is behind.
func nodes(s *wire.StatusResponse) []part {
	var applied uint64
	for _, n := range s.GetNodes() {
		applied = max(applied, n.GetAppliedIndex())
	}
	l := []part{{"nodes", ""}}
	for _, n := range s.GetNodes() {
		text, look := "  "+words.Printable(n.GetId())+" "+words.Role(n), style("")
		switch behind := applied - n.GetAppliedIndex(); {
		case !n.GetReachable():
			text, look = text+" UNREACHABLE", urgent
		case behind >= lagNotice:
			text, look = fmt.Sprintf("%s %s behind", text, number(behind)), warning
		}
		l = append(l, part{text, look})
	}
	return l
}

// latencies are the medians of the last minute at the leader.
func latencies(s *wire.StatusResponse) string {
	for _, n := range s.GetNodes() {
		if n.GetLeader() && n.GetCommitUs() > 0 {
			return "  disk " + words.Micros(n.GetDiskSyncUs()) + "  commit " + words.Micros(n.GetCommitUs())
		}
	}
	return ""
}

// bars are the levels of a sparkline.
var bars = []rune("▁▂▃▄▅▆▇█")

// sparkline draws the samples into a width. If there are more, each bar is the greatest of several.
func (s Samples) sparkline(width int) string {
	per := 1
	for width > 0 && (len(s.Grants)+per-1)/per > width {
		per++
	}
	var line []rune
	top := max(1, slices.Max(append([]uint64{0}, s.Grants...)))
	for part := range slices.Chunk(s.Grants, per) {
		value := slices.Max(part)
		level := (value*uint64(len(bars)-1) + top - 1) / top
		line = append(line, bars[level])
	}
	return string(line)
}

// rate is the number of grants per second in the last interval.
func (s Samples) rate() string {
	if len(s.Grants) == 0 || s.Interval <= 0 {
		return "not measured yet"
	}
	last := float64(s.Grants[len(s.Grants)-1]) / s.Interval.Seconds()
	if last < 10 && last > 0 {
		return strconv.FormatFloat(last, 'f', 1, 64) + "/s"
	}
	return number(uint64(last)) + "/s"
}

// number formats a number with its thousands apart.
func number(n uint64) string {
	digits := strconv.FormatUint(n, 10)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// counted formats a number and its noun.
func counted(n uint64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return number(n) + " " + noun
}
