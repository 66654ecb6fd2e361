package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/quorumlock/quorumlock/server/internal/examine"
	"github.com/quorumlock/quorumlock/test/scrape"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// withEverything opens a node that has all ports, and all parts that have metrics.
func withEverything(t *testing.T) *Node {
	t.Helper()
	cfg := quick(t)
	_, _, cfg.PeerTLS = certificates(t)
	cfg.RedisAddr, cfg.HealthAddr, cfg.Logger = "127.0.0.1:0", "127.0.0.1:0", nil
	cfg.AuditLog, cfg.BackupDir = filepath.Join(t.TempDir(), "audit.log"), t.TempDir()
	node := open(t, cfg)
	serving(t, node)
	return node
}

// metric is what the registry of a node says about a metric.
type metric struct{ name, kind, help, labels string }

// unit returns the unit that the name says.
func (m metric) unit() string {
	for _, u := range []struct{ suffix, unit string }{
		{"_timestamp_seconds", "Unix time"}, {"_seconds", "seconds"}, {"_bytes", "bytes"}, {"_bytes_total", "bytes"}, {"_entries", "entries"},
	} {
		if strings.HasSuffix(m.name, u.suffix) {
			return u.unit
		}
	}
	return ""
}

// row returns the metric's row in the documentation.
func (m metric) row() string {
	labels := ""
	if m.labels != "" {
		labels = "`" + strings.ReplaceAll(m.labels, ",", "`, `") + "`"
	}
	return strings.Join(strings.Fields(fmt.Sprintf("| `%s` | %s | %s | %s | %s |", m.name, m.kind, labels, m.unit(), m.help)), " ")
}

var (
	described = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	constant  = regexp.MustCompile(`(\w+)="`)
)

// registered returns all metrics of a node, also those without a series yet, except those of Go and the process.
func registered(t *testing.T, node *Node) map[string]metric {
	t.Helper()
	kinds := map[string]string{}
	for _, f := range gathered(t, node) {
		kinds[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		node.cfg.Registry.Describe(descs)
	}()
	all := map[string]metric{}
	for d := range descs {
		parts := described.FindStringSubmatch(d.String())
		if parts == nil {
			t.Errorf("cannot read %v", d)
			continue
		}
		name, err := strconv.Unquote(parts[1])
		help, err2 := strconv.Unquote(parts[2])
		if err = errors.Join(err, err2); err != nil {
			t.Error(err)
		}
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		var labels []string
		for _, found := range constant.FindAllStringSubmatch(parts[3], -1) {
			labels = append(labels, found[1])
		}
		if parts[4] != "" {
			labels = append(labels, strings.Split(parts[4], ",")...)
		}
		kind := kinds[name]
		if kind == "" { // it has no series yet
			kind = map[bool]string{true: "counter", false: "gauge"}[strings.HasSuffix(name, "_total")]
		}
		all[name] = metric{name, kind, help, strings.Join(labels, ",")}
	}
	return all
}

func gathered(t *testing.T, node *Node) []*dto.MetricFamily {
	t.Helper()
	families, err := node.cfg.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// TestMetricsAreDocumented verifies that docs/ops/METRICS.md has exactly the metrics of a node with all ports, with their
// types, labels, units and help texts. It prints the rows that are missing.
func TestMetricsAreDocumented(t *testing.T) {
	node := withEverything(t)
	dialRedis(t, node, "").must("+PONG\r\n", "PING")
	dial(t, node).open("a secret of some length")
	metrics(t, node)
	text, err := os.ReadFile("../docs/ops/METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| `quorumlock_") {
			documented[strings.Join(strings.Fields(line), " ")] = true
		}
	}
	all := registered(t, node)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if row := all[name].row(); !documented[row] {
			t.Errorf("docs/ops/METRICS.md lacks\n%s", row)
		} else {
			delete(documented, row)
		}
	}
	for row := range documented {
		t.Errorf("docs/ops/METRICS.md has a metric that a node has not, or describes it otherwise:\n%s", row)
	}
}

// notBase are the ends of names with other units than the base units of Prometheus.
var notBase = regexp.MustCompile(`_(ms|milliseconds|us|microseconds|ns|minutes|hours|days|kb|mb|kilobytes|megabytes|percent|ratio_percent)(_total)?$`)

// TestMetricsAreNamedByConvention verifies the names and help texts of all metrics.
func TestMetricsAreNamedByConvention(t *testing.T) {
	for _, m := range registered(t, withEverything(t)) {
		if !strings.HasPrefix(m.name, "quorumlock_") || notBase.MatchString(m.name) {
			t.Errorf("%s: name it quorumlock_…, and measure in seconds or bytes", m.name)
		}
		if strings.HasSuffix(m.name, "_total") != (m.kind == "counter") {
			t.Errorf("%s is a %s: counters, and no others, end in _total", m.name, m.kind)
		}
		if !strings.HasSuffix(m.help, ".") {
			t.Errorf("%s: the help text %q does not end with a full stop", m.name, m.help)
		}
	}
}

// TestNativeHistogramsAreServed verifies that a scraper that asks for the format with native histograms gets them, with
// the classic buckets beside them, and that others get text.
func TestNativeHistogramsAreServed(t *testing.T) {
	node := withEverything(t)
	dial(t, node).open("a secret of some length")
	if text := metrics(t, node); !strings.Contains(text, `quorumlock_commit_seconds_bucket{le="+Inf"}`) {
		t.Errorf("without asking:\n%s", text)
	}
	req, err := http.NewRequestWithContext(bounded(t), http.MethodGet, "http://"+node.Addrs().HTTP+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,text/plain;version=0.0.4;q=0.3")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	native := map[string]bool{}
	decoder := expfmt.NewDecoder(bufio.NewReader(resp.Body), expfmt.ResponseFormat(resp.Header))
	for {
		var f dto.MetricFamily
		if err := decoder.Decode(&f); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, m := range f.GetMetric() {
			h := m.GetHistogram()
			if h == nil || !strings.HasPrefix(f.GetName(), "quorumlock_") {
				continue
			}
			if native[f.GetName()] = h.Schema != nil && len(h.GetPositiveSpan()) > 0; h.Schema == nil || len(h.GetBucket()) < 5 {
				t.Errorf("%s: schema %v, %d classic buckets", f.GetName(), h.Schema, len(h.GetBucket()))
			}
		}
	}
	for _, name := range []string{"commit_seconds", "disk_sync_seconds", "entry_bytes", "entry_commands", "client_request_seconds", "http_request_seconds"} {
		if !native["quorumlock_"+name] {
			t.Errorf("%s has no native buckets", name)
		}
	}
}

// TestFreeSpaceIsShown verifies the free space of the data directory, while the node runs.
func TestFreeSpaceIsShown(t *testing.T) {
	cfg := quick(t)
	cfg.Registry = prometheus.NewRegistry()
	node := open(t, cfg)
	free, known := examine.FreeBytes(cfg.DataDir)
	got, shown := scrape.Values(t, cfg.Registry)["data_free_bytes"]
	if shown != known || math.Abs(got-float64(free)) > 1<<30 {
		t.Errorf("%v bytes are free, shown %v; want about %d", got, shown, free)
	}
	shut(t, node)
	if _, shown := scrape.Values(t, cfg.Registry)["data_free_bytes"]; shown {
		t.Error("a node that has stopped shows free space")
	}
}

// maxSeries bounds the series of a node, classic buckets and those of Go included. The test has about 1,700: 500 for the
// node, and 1,200 for all kinds of requests of two ports, each with a histogram of 14 or 15 series and a counter by
// status. The rest is room for the statuses that requests can also have, and for the series of seven members.
const maxSeries = 2_500

// series returns all series of a node, a histogram's as often as a scraper stores it.
func series(t *testing.T, node *Node) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, f := range gathered(t, node) {
		for _, m := range f.GetMetric() {
			n := 1
			if h := m.GetHistogram(); h != nil {
				n = len(h.GetBucket()) + 3
			}
			all[fmt.Sprint(f.GetName(), m.GetLabel())] = n
		}
	}
	return all
}

// TestSeriesDoNotDependOnNames verifies that the series of a node are the same after a few and after many names of locks,
// sessions, owners, identities, keys and paths, and that they are few even if clients use every kind of request.
func TestSeriesDoNotDependOnNames(t *testing.T) {
	names := 20_000
	if os.Getenv("QUORUMLOCK_CHECK") == "1" {
		names = 1_000_000
	}
	node := withEverything(t)
	callers := identities(t, node, 60)
	use := func(names int, callers []string) {
		for i, token := range callers {
			s, err := dialAs(t, node, token)
			if err != nil {
				t.Fatal(err)
			}
			flood(s, fmt.Sprintf("%032d", i), names/len(callers))
			key := fmt.Sprint("key/", i)
			dialRedis(t, node, token).must("+OK\r\n", "SET", key, token, "NX", "PX", "100")
			for _, procedure := range []string{"LockService/Get", "None/" + key, "SessionService/Open"} {
				post(t, node, token, procedure, fmt.Sprintf(`{"name":"none/%d"}`, i))
			}
			post(t, node, identity.NewToken(), "LockService/Get", `{}`)
		}
	}
	everyKind(t, node, callers[0])
	use(30, callers[:3])
	eventually(t, "a backup, the end of the keys and the lines of denials", func() bool {
		seen := scrape.Values(t, node.cfg.Registry)
		return seen["last_backup_bytes"] > 0 && seen["locks"] == 0 && seen["audit_log_lines_total DENIED"] > 0
	})
	few := series(t, node)
	use(names, callers[3:])
	many := series(t, node)
	total, fresh := 0, []string{}
	for key, n := range many {
		if total += n; few[key] == 0 {
			fresh = append(fresh, key)
		}
	}
	if len(fresh) > 0 {
		t.Errorf("%d series are new after %d names, such as %s", len(fresh), names, fresh[0])
	}
	if total > maxSeries {
		t.Errorf("%d series, want at most %d", total, maxSeries)
	}
	t.Logf("%d series after %d names", total, names)
}

// everyKind sends every kind of request on both ports, without any content. Most are refused.
func everyKind(t *testing.T, node *Node, token string) {
	t.Helper()
	bodies := (&wire.Request{}).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	for i := range bodies.Len() {
		req := &wire.Request{}
		req.ProtoReflect().Set(bodies.Get(i), req.ProtoReflect().NewField(bodies.Get(i)))
		s, err := dialAs(t, node, token)
		if err != nil {
			t.Fatal(err)
		}
		s.answer(req)
	}
	services := wire.File_quorumlock_v1_service_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			if !methods.Get(j).IsStreamingServer() {
				post(t, node, token, fmt.Sprint(services.Get(i).Name(), "/", methods.Get(j).Name()), `{}`)
			}
		}
	}
}

// identities returns the tokens of so many identities that may do everything with locks.
func identities(t *testing.T, node *Node, n int) (tokens []string) {
	t.Helper()
	c, policy := dial(t, node), &wire.Policy{}
	for i := range n {
		name, token := fmt.Sprint("app-", i), identity.NewToken()
		c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_CreateToken{CreateToken: &wire.CreateTokenRequest{Name: name, AuthToken: token, Reason: "test"}}})
		policy.Bindings = append(policy.Bindings, &wire.Binding{Identity: name, Roles: []string{"admin", "user"}})
		tokens = append(tokens, token)
	}
	c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: policy, Reason: "test"}}})
	return tokens
}

// flood acquires and releases so many locks in a session of its own, each with another name and owner, many at once. It
// also has requests that fail.
func flood(s *speaker, secret string, names int) {
	s.t.Helper()
	const together = 200
	session, seq := s.open(secret), uint64(0)
	s.expect(wire.Status_NOT_HELD, release(session, 1, &wire.Result{HoldId: 1, Token: 1}))
	s.expect(wire.Status_NOT_ATTACHED, heartbeat(session+1_000_000))
	seq = 1
	for done := 0; done < names; done += together {
		_ = s.conn.SetDeadline(time.Now().Add(testTimeout))
		var acquires, releases []*wire.Request
		for i := range min(together, names-done) {
			seq++
			req := acquire(session, seq, fmt.Sprintf("orders/%s/%d", secret, done+i))
			req.GetAcquire().Owner, req.AckedBelow = seq, seq-uint64(i)
			acquires = append(acquires, req)
		}
		for i, resp := range s.together(acquires) {
			if resp.GetResult().GetStatus() != wire.Status_GRANTED {
				s.t.Fatal(resp)
			}
			seq++
			req := release(session, seq, resp.GetResult())
			req.AckedBelow = seq - uint64(i)
			releases = append(releases, req)
		}
		for _, resp := range s.together(releases) {
			if resp.GetResult().GetStatus() != wire.Status_OK {
				s.t.Fatal(resp)
			}
		}
	}
	s.expect(wire.Status_OK, &wire.Request{SessionId: session, Body: &wire.Request_CloseSession{CloseSession: &wire.CloseSession{}}})
}

// together sends all requests before it reads the responses, which it returns in the order of the requests.
func (s *speaker) together(requests []*wire.Request) []*wire.Response {
	s.t.Helper()
	first := s.nextID + 1
	for _, req := range requests {
		s.nextID++
		req.Id = s.nextID
		if err := s.w.Write(&wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: req}}); err != nil {
			s.t.Fatal("send:", err)
		}
	}
	responses := make([]*wire.Response, len(requests))
	for left := len(requests); left > 0; {
		if resp := s.read().GetResponse(); resp != nil {
			responses[resp.Id-first] = resp
			left--
		}
	}
	return responses
}
